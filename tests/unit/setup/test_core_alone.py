"""A server of the core alone: its admission, and what it refuses to start with."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.scripted.engine import ScriptedEngine, StepClock
from tests.support.served import SETTINGS
from trt_responses.backends.engines import engine_of
from trt_responses.errors import ServerBusy, StartupError
from trt_responses.run.admission import OpenAdmission
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given, served_engine
from trt_responses.setup.server import Server


def test_keys_that_nothing_checks_stop_the_start() -> None:
    settings = Settings(**SETTINGS, api_keys="ann:key-a")
    engine = ScriptedEngine((), clock=StepClock.free())
    served = served_engine(settings, Given(engine), engine_of)
    with pytest.raises(
        StartupError, match=r"features\.limits, which checks them, is not installed"
    ):
        Server(settings, served, None, None, asyncio.sleep).build()


def test_who_finds_no_place_is_told_to_come_again_and_a_place_is_given_back_once() -> None:
    admission = OpenAdmission(lambda: 1)
    place = admission.enter("ann")
    with pytest.raises(ServerBusy):
        admission.enter("bob")
    place.leave()
    place.leave()
    assert admission.running == 0
    assert admission.enter("bob").turn() is None

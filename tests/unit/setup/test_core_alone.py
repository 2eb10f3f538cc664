"""A server of the core alone: its admission."""

from __future__ import annotations

import pytest

from trt_responses.errors import ServerBusy
from trt_responses.run.admission import OpenAdmission


def test_who_finds_no_place_is_told_to_come_again_and_a_place_is_given_back_once() -> None:
    admission = OpenAdmission(lambda: 1)
    place = admission.enter("ann")
    with pytest.raises(ServerBusy):
        admission.enter("bob")
    place.leave()
    place.leave()
    assert admission.running == 0
    assert admission.enter("bob").turn() is None

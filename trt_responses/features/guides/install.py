"""Answers and calls that are held to schemas, grammars, choices and budgets."""

from __future__ import annotations

from functools import partial

from trt_responses.features.guides.steering import GuidedSteering
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.new_steering = partial(GuidedSteering, schema_s=server.settings.schema_s)

"""Several calls in one turn of gpt-oss."""

from __future__ import annotations

from trt_responses.features.guides.harmony_turns import steer
from trt_responses.features.parallel_calls.parallel_calls import ParallelCalls
from trt_responses.harmony.dialect import Harmony
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    for dialect in server.dialects():
        if isinstance(dialect, Harmony):
            steer(dialect, ParallelCalls)

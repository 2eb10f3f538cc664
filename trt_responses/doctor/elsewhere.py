"""Checks an engine of another server over gRPC: whether it answers, and what it supports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from trt_responses.backends.engines import grpc_at
from trt_responses.doctor.check import Check
from trt_responses.errors import StartupError
from trt_responses.settings import Settings

START_S = 5.0
"""Timeout of the first answer: the check does not wait for an engine that is still loading."""


def elsewhere_checks(settings: Settings, start_s: float = START_S) -> Iterator[Check]:
    """The check of the engine that TRT_RESPONSES_ENGINE names over gRPC; none for another kind."""
    elsewhere = settings.engine_elsewhere()
    if elsewhere is None or elsewhere.kind != "grpc":
        return
    try:
        yield Check("engine over gRPC", "ok", asyncio.run(_summary(elsewhere.place, start_s)))
    except StartupError as error:
        remedy = "start it with `trtllm-serve MODEL --grpc`, or set another TRT_RESPONSES_ENGINE"
        yield Check("engine over gRPC", "fault", str(error), remedy)


async def _summary(place: str, start_s: float) -> str:
    engine = grpc_at(place, start_s)
    await engine.start()
    try:
        limits = engine.limits()
        guides = ", ".join(sorted(limits.guides)) or "none"
        nothing = ", ".join(sorted(limits.ignores)) or "nothing"
        return (
            f"{place} answers: {limits.context_tokens} ids, {limits.max_batch} at once, guides: "
            f"{guides}; it ignores {nothing}"
        )
    finally:
        await engine.stop(0)

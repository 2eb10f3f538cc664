"""An engine that another server serves over gRPC: whether it is there, and what it can do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trt_responses.backends.engines import grpc_at
from trt_responses.doctor.check import Check
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.settings import Settings

START_S = 5.0
"""Seconds that such an engine has for its first answer: it is not waited for while it loads."""


def elsewhere_checks(settings: Settings, start_s: float = START_S) -> Iterator[Check]:
    """The engine that the settings name over gRPC, asked a few small questions, if they do."""
    elsewhere = settings.engine_elsewhere()
    if elsewhere is None or elsewhere.kind != "grpc":
        return
    try:
        yield Check("engine over gRPC", "ok", asyncio.run(_asked(elsewhere.place, start_s)))
    except StartupError as error:
        remedy = "start it with `trtllm-serve MODEL --grpc`, or set another TRT_RESPONSES_ENGINE"
        yield Check("engine over gRPC", "fault", str(error), remedy)


async def _asked(place: str, start_s: float) -> str:
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

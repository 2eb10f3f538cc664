"""Checks an engine of another server, over gRPC or HTTP: whether it answers, and what it
supports."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from trt_responses.backends.dialects import dialect_named
from trt_responses.backends.elsewhere import Elsewhere, elsewhere_in
from trt_responses.backends.engines import grpc_at
from trt_responses.backends.http import SERVERS, START, http_at, ids_of, scheme_of
from trt_responses.backends.settings import EngineSettings
from trt_responses.doctor.check import Check
from trt_responses.engines.distant import DistantEngine
from trt_responses.errors import StartupError
from trt_responses.settings import Settings

START_S = 5.0
GRPC_START = ("trtllm-serve MODEL --grpc", "vllm serve MODEL --grpc")
"""Timeout of the first answer: the check does not wait for an engine that is still loading."""


def elsewhere_checks(settings: Settings, start_s: float = START_S) -> Iterator[Check]:
    """The check of each engine that TRT_RESPONSES_ENGINE names on another server."""
    elsewhere = elsewhere_in(settings)
    if elsewhere is None:
        return
    if elsewhere.kind == "several":
        for place in {entry.partition("=")[2]: None for entry in elsewhere.place.split(",")}:
            alone = settings.model_copy(update={"engine": place})
            yield from elsewhere_checks(alone, start_s)
        return
    scheme = scheme_of(elsewhere.kind)
    if elsewhere.kind != "grpc" and scheme not in SERVERS:
        return
    name = f"engine over {SERVERS.get(scheme, 'gRPC')}"
    try:
        yield Check(
            name, "ok", asyncio.run(_summary(_engine(elsewhere, settings, start_s), elsewhere))
        )
    except StartupError as error:
        starts = [START[scheme]] if scheme in START else GRPC_START
        command = " or ".join(f"`{start}`" for start in starts)
        remedy = f"start it with {command}, or set another TRT_RESPONSES_ENGINE"
        yield Check(name, "fault", str(error), remedy)


def _engine(elsewhere: Elsewhere, settings: Settings, start_s: float) -> DistantEngine:
    if elsewhere.kind == "grpc":
        return grpc_at(elsewhere.place, start_s)
    return http_at(elsewhere, start_s, ids_of(dialect_named(EngineSettings.of(settings).speaks)))


async def _summary(engine: DistantEngine, elsewhere: Elsewhere) -> str:
    await engine.start()
    try:
        limits = engine.limits()
        guides = ", ".join(sorted(limits.guides)) or "none"
        about = f" ({engine.about})" if engine.about else ""
        nothing = ", ".join(sorted(limits.ignores)) or "nothing"
        return (
            f"{elsewhere.place} answers{about}: {limits.context_tokens} ids, {limits.max_batch} "
            f"at once, guides: {guides}; it ignores {nothing}"
        )
    finally:
        await engine.stop(0)

"""Generates the rest of a segment whose engine went away, with the next engine.

Knows the life of a generation; knows neither why the engine went, nor how long it stays away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from trt_responses.engine import Loss
from trt_responses.errors import EngineLost
from trt_responses.language.steering import Segment
from trt_responses.run.ending import End
from trt_responses.run.generation import Generation

Wait = Callable[[Loss, bool], Awaitable[End | None]]
"""Waits for the engine, of a run that has got nothing since the last wait if so. Returns the
run's end if it cannot go on."""

LOSSES: Mapping[Loss, str] = {
    "died": "The engine died",
    "exchanged": "The engine was exchanged",
    "moved": "The server stopped",
}


async def rest_of(generation: Generation, segment: Segment, end: End, wait: Wait | None) -> End:
    """Generate the rest, in one more engine request for each time that the engine goes away.
    Without a `wait`, only a run that has moved here goes on."""
    room = segment.max_tokens
    while (loss := end.lost) is not None and generation.verdict is None:
        before, room = room, generation.room(segment)
        if loss != "moved" and wait is None:
            break
        if generation.half_way:
            return End("failed", _half_way(loss))
        if loss != "moved" and wait is not None:
            no_way = await wait(loss, room == before)
            if no_way is not None:
                return no_way
        if room < 1:
            return await generation.run_out()
        end = await generation.request(replace(segment, forced=(), max_tokens=room))
    return end


async def moved(generation: Generation, segment: Segment, end: End) -> End:
    """Generate the rest of a segment that another server has begun."""
    return await rest_of(generation, segment, end, None)


def _half_way(loss: Loss) -> EngineLost:
    return EngineLost(
        f"{LOSSES[loss]} while a text was written under a schema, which cannot be entered "
        "half-way: send the request again.",
        retry_after_s=1,
    )

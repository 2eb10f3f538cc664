"""The server called in this process, without sockets: what its own code costs for each token.

One stream at a time. Contenders take turns inside each repeat, so that a busy neighbour hurts both.
"""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.asgi import post, stream_of
from bench.asks import BODY
from bench.check import Seen, Wrong, seen
from bench.floor import floor
from bench.script import script
from bench.timing import Repeats, cpu_ns
from trt_responses.engine import GenerateOptions
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.types import ASGIApp

    from bench.ours import Playing
    from bench.script import Script
    from tests.support.scripted.engine import ScriptedEngine
    from trt_responses.engine import Chunk
    from trt_responses.tokens.vocabulary import Vocabulary

    Once = Callable[[], Awaitable[object]]

TOKENS_A_REPEAT = 40_000
"""About 60 ms of the floor: long enough for a clock, short enough to be left alone."""

MOST_APART = 0.02
"""How far the size of the floor's delta frames may be from ours."""


@dataclass(frozen=True, slots=True)
class Row:
    """One length and one number of ids for each step."""

    length: int
    chunk: int
    seen: Seen
    floor: Repeats
    ours: Repeats
    engine: Repeats
    """Of it, what the scripted engine takes by itself, and no floor has."""


async def rows(
    vocabulary: Vocabulary,
    playing: Playing,
    lengths: Iterable[int],
    chunks: Iterable[int],
    repeats: int,
) -> list[Row]:
    """Every length with every chunk, over an app that is up."""
    return [
        await _row(vocabulary, playing, length, chunk, repeats)
        for length in lengths
        for chunk in chunks
    ]


async def _row(
    vocabulary: Vocabulary, playing: Playing, length: int, chunk: int, repeats: int
) -> Row:
    words = script(vocabulary, length)
    playing.play(words, chunk)
    base = floor(vocabulary, words, chunk)
    sent = await checked(base, playing.app, words)
    contenders = {
        "floor": _once(base),
        "ours": _once(playing.app),
        "engine": _Alone(playing.engine, len(words)).once,
    }
    times = await interleaved(contenders, len(words), repeats)
    return Row(length, chunk, sent, *(Repeats(tuple(us)) for us in times.values()))


async def checked(floor_app: ASGIApp, our_app: ASGIApp, words: Script) -> Seen:
    """Check both servers, and their delta frames for one size. Returns what ours sent."""
    base = seen(await stream_of(floor_app, BODY), words, whole=False)
    sent = seen(await stream_of(our_app, BODY), words, whole=True)
    alike(base, sent)
    return sent


def alike(base: Seen, sent: Seen) -> None:
    if base.deltas != sent.deltas:
        raise Wrong(f"ours sent {sent.deltas} deltas, the floor {base.deltas}")
    if abs(base.delta_bytes / sent.delta_bytes - 1) > MOST_APART:
        raise Wrong(f"the floor's deltas have {base.delta_bytes} bytes, ours {sent.delta_bytes}")


async def interleaved(
    contenders: dict[str, Once], tokens: int, repeats: int
) -> dict[str, list[float]]:
    """µs for each token of each contender, in turns."""
    rounds = max(1, TOKENS_A_REPEAT // tokens)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(-1, repeats):  # the first one warms up
        for name, once in contenders.items():
            spent_us = await _spent_us(once, rounds)
            if repeat >= 0:
                times[name].append(spent_us / (rounds * tokens))
    return times


async def _spent_us(once: Once, rounds: int) -> float:
    gc.collect()
    before = cpu_ns()
    for _ in range(rounds):
        await once()
    return (cpu_ns() - before) / 1000


def _once(app: ASGIApp) -> Once:
    return lambda: post(app, BODY, len)


class _Alone:
    """The scripted engine with only this sink behind it."""

    def __init__(self, engine: ScriptedEngine, tokens: int) -> None:
        self._engine = engine
        self._options = GenerateOptions(tokens + 1, (CONTROL.return_, CONTROL.call))
        self._over: asyncio.Future[None] | None = None

    def push(self, chunk: Chunk, /) -> None:
        if chunk.finish is not None and self._over is not None:
            self._over.set_result(None)

    async def once(self) -> None:
        self._over = asyncio.get_running_loop().create_future()
        self._engine.generate((CONTROL.start,), self._options, self)
        await self._over

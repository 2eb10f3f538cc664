"""A sink that keeps every chunk, and the same as an async iterator: for tests only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from trt_responses.engine import (
        Chunk,
        Engine,
        Finish,
        GenerateOptions,
        Handle,
        Logprob,
    )


class Gather:
    """Collects what an engine pushes. `await done()` until the chunk that carries a finish."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self._changed = asyncio.Event()

    def push(self, chunk: Chunk, /) -> None:
        self.chunks.append(chunk)
        self._changed.set()

    async def done(self) -> Gather:
        await self.until(lambda: self.finished)
        return self

    async def some(self, ids: int = 1) -> Gather:
        """Until at least so many ids came, or the end."""
        await self.until(lambda: self.finished or len(self.token_ids) >= ids)
        return self

    async def more_than(self, count: int) -> None:
        await self.until(lambda: len(self.chunks) > count)

    async def until(self, claim: Callable[[], bool]) -> None:
        while not claim():
            self._changed.clear()
            await self._changed.wait()

    @property
    def finished(self) -> bool:
        return bool(self.chunks) and self.chunks[-1].finish is not None

    @property
    def token_ids(self) -> list[int]:
        return [token_id for chunk in self.chunks for token_id in chunk.token_ids]

    @property
    def logprobs(self) -> list[Logprob]:
        return [entry for chunk in self.chunks for entry in chunk.logprobs]

    @property
    def cached_tokens(self) -> int | None:
        return next((c.cached_tokens for c in self.chunks if c.cached_tokens is not None), None)

    @property
    def end(self) -> End:
        """How it ended; says so when it did not, or when something came after."""
        ends = [chunk for chunk in self.chunks if chunk.finish is not None]
        assert len(ends) == 1, f"{len(ends)} chunks carry a finish"
        assert self.chunks[-1] is ends[0], "a chunk came after the finish"
        return End(ends[0].finish, ends[0].stop_id, ends[0].error, ends[0].metrics)


@dataclass(frozen=True, slots=True)
class End:
    finish: Finish | None
    stop_id: int | None = None
    error: str | None = None
    metrics: Mapping[str, float] | None = None


def begin(
    engine: Engine, prompt_ids: Sequence[int], options: GenerateOptions
) -> tuple[Gather, Handle]:
    sink = Gather()
    return sink, engine.generate(prompt_ids, options, sink)


async def generated(engine: Engine, prompt_ids: Sequence[int], options: GenerateOptions) -> Gather:
    """One request from its beginning to its end."""
    return await begin(engine, prompt_ids, options)[0].done()


async def chunks(
    engine: Engine, prompt_ids: Sequence[int], options: GenerateOptions
) -> AsyncIterator[Chunk]:
    """The chunks as they come. Leaving early aborts the request."""
    sink, handle = begin(engine, prompt_ids, options)
    given = 0
    try:
        while given == 0 or sink.chunks[given - 1].finish is None:
            await sink.more_than(given)
            yield sink.chunks[given]
            given += 1
    finally:
        handle.abort()

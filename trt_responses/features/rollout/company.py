"""Company for a version that is compared: copies of what the served version is at work on.

How fast a version is says little by itself: a token takes longer the more is generated beside it,
and the longer those prompts are. So what the served version makes for clients is begun on the
other one too, from the prompt and what the client has got so far. It is discarded, and it ends with
the client's response. Knows runs and the engine's seam.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from trt_responses.engine import Chunk, Engine, Handle
from trt_responses.errors import ApiError
from trt_responses.frozen import replace
from trt_responses.run.run import Run

LOOK_S = 0.02
"""So often is looked which responses clients wait for."""
BEGIN_S = 60.0
"""So long the first copies may take to begin."""


class Company:
    """The copies on one engine, one for each of the client's responses."""

    def __init__(
        self,
        engine: Engine,
        running: Callable[[], Iterable[Run]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`running` are those that the served version is at work on."""
        self._engine = engine
        self._running = running
        self._sleep = sleep
        self._copies: dict[Run, Copy] = {}

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """While it lasts the engine has company. Runs from before have been begun."""
        keeping = asyncio.create_task(self._keep())
        try:
            self._look()
            first = tuple(self._copies.values())
            with suppress(TimeoutError):  # one that stands still fails at the gate's next prompt
                async with asyncio.timeout(BEGIN_S):
                    while not all(copy.begun or copy.over for copy in first):
                        await self._sleep(LOOK_S)
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            for copy in self._copies.values():
                copy.end()
            self._copies.clear()

    async def _keep(self) -> None:
        while True:
            await self._sleep(LOOK_S)
            self._look()

    def _look(self) -> None:
        """End the copies of responses that have ended, and begin those that there are none of."""
        running = {run for run in self._running() if run.prompt_ids}  # it has not forgotten them
        for run in [run for run, copy in self._copies.items() if copy.over or run not in running]:
            self._copies.pop(run).end()
        room = self._engine.limits().max_batch - 1 - len(self._copies)
        for run in [run for run in running if run not in self._copies][: max(0, room)]:
            self._copies[run] = Copy(self._engine, run)


class Copy:
    """A request that goes on from where a client's response is, as long as it is let."""

    def __init__(self, engine: Engine, run: Run) -> None:
        self.begun = False
        """Whether it has its first token."""
        self.over = False
        self._handle: Handle | None = None
        prompt = [*run.prompt_ids, *run.reader.kept]
        options = replace(
            run.options,
            max_tokens=max(1, engine.limits().context_tokens - len(prompt)),
            stop_ids=(),
            logprobs=None,
            guide=None,
            request_id="",
            trace_headers={},
        )
        try:
            self._handle = engine.generate(prompt, options, self)
        except ApiError:
            self.over = True

    def push(self, chunk: Chunk, /) -> None:
        self.begun = True
        self.over = chunk.finish is not None

    def end(self) -> None:
        self.over = True
        if self._handle is not None:
            self._handle.abort()

"""Starts runs, counts those that are going on, and ends them all.

Knows when a run may begin; how one is put together is in `assembly.py`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from trt_responses.errors import EngineUnavailable
from trt_responses.response.assembly import Assembly, RunInputs
from trt_responses.response.conversations import Writers
from trt_responses.wire.dialect import OPENAI

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trt_responses.errors import ApiError
    from trt_responses.response.accepted import Accepted
    from trt_responses.response.assembly import NewSpelling
    from trt_responses.response.commit import Keep, Memory
    from trt_responses.response.lifecycle import Lifecycle
    from trt_responses.response.parts import Parts
    from trt_responses.response.run import Progress, Run
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.response import Response


class Runs:
    """Starts runs, knows those that are going on, and ends them when the server must."""

    def __init__(self, parts: Parts, lifecycle: Lifecycle) -> None:
        self._parts = parts
        self._assembly = Assembly(parts)
        self._lifecycle = lifecycle
        self._running: set[Run] = set()
        self._starting = 0
        self.writers = Writers()
        self._writing: dict[Run, tuple[str, str]] = {}

    def __len__(self) -> int:
        return self._starting + len(self._running)

    @property
    def built_in(self) -> Mapping[str, str]:
        """The kinds of tools that the server runs, and the model's names for them."""
        return {kind: tool.name for kind, tool in self._parts.tools.items()}

    def progress(self) -> Iterator[Progress]:
        """Of all that are being made."""
        return (run.progress for run in self._running)

    async def start(
        self,
        accepted: Accepted,
        *,
        owner: str,
        arrival_ns: int,
        keep: Keep | None = None,
        dialect: Dialect = OPENAI,
        spelling: NewSpelling | None = None,
        memory: Memory | None = None,
    ) -> Run:
        """A run that its owner has to `make` or `release`, or an `ApiError` before any token.

        It has its place from here on, for its prompt may take long to tokenise. `keep` takes its
        record instead of the store; `spelling` writes its log as another API's, and is made from
        the response and the number of the prompt's tokens; `memory` is asked for what it continues,
        and told of what can be continued, be it stored or not.
        """
        self._check_ready()
        with ExitStack() as unless_started:
            if (conversation := accepted.conversation) is not None:
                self.writers.hold(conversation, owner)
                unless_started.callback(self.writers.free, conversation, owner)
            place = self._parts.admission.enter(owner)
            unless_started.callback(place.leave)
            self._starting += 1
            try:
                inputs = RunInputs(accepted, owner, arrival_ns, keep, dialect, spelling, memory)
                run = await self._assembly.run(inputs, place)
                self._running.add(run)
            finally:
                self._starting -= 1
            unless_started.pop_all()
        if conversation is not None:
            self._writing[run] = (conversation, owner)
        return run

    async def count(self, accepted: Accepted, *, owner: str) -> int:
        """The input tokens that a response to the request would be made from."""
        return await self._assembly.count(accepted, owner)

    def release(self, run: Run) -> None:
        """Its place is free; if it has not been made, it will not be."""
        self._leave(run)
        run.abandon()

    async def make(self, run: Run) -> Response:
        """Make it; when it has ended, its place is free."""
        try:
            return await run.make()
        finally:
            self._leave(run)

    def _leave(self, run: Run) -> None:
        self._running.discard(run)
        if (written := self._writing.pop(run, None)) is not None:
            self.writers.free(*written)

    def fail_begun(self, error: ApiError) -> None:
        """All that the engine is at work on; those that wait for it go on waiting."""
        for run in tuple(self._running):
            if run.begun:
                run.fail(error)

    def fail_all(self, error: ApiError) -> None:
        for run in tuple(self._running):
            run.fail(error)

    def _check_ready(self) -> None:
        self._lifecycle.check_takes_work()
        if not (health := self._parts.engine.health()).ready:
            reason = (health.reason or "it is starting").removesuffix(".")
            raise EngineUnavailable(f"The engine is not ready: {reason}.", retry_after_s=5)

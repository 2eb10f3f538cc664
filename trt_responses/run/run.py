"""A run is a response being made: it owns the generation, the log, and the end.

Stream, plain and background are readers of the log; nothing here knows which of them there is. A
run ends once, in one of four ways, and `make` is the only place that writes the end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from trt_responses.errors import ServerShutdown
from trt_responses.frozen import replace
from trt_responses.run.ending import End, ending, last_snapshot
from trt_responses.run.facts import Progress, RunFacts
from trt_responses.run.origin import ORIGIN
from trt_responses.wire import events as e

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trt_responses.engine import GenerateOptions
    from trt_responses.errors import ApiError
    from trt_responses.run.draft import Draft
    from trt_responses.run.generation import Generation
    from trt_responses.wire import response as r

    Commit = Callable[[r.Response, "Run"], Awaitable[None]]

logger = logging.getLogger(__name__)


class Run:
    """One response, from its first event to its last. The owner awaits `make`."""

    def __init__(self, generation: Generation, draft: Draft, commit: Commit) -> None:
        parts = draft.parts
        self.date = draft.prompt.date
        """The date in its prompt."""
        self.leave_to_others: Callable[[], bool] | None = None
        """Called when the server ends; returns whether another server goes on with the run."""
        self.kept = False
        """Whether jobs make it, so that it does not end with its readers."""
        self.log = generation.log
        self.reader = generation.reader
        self.owner = draft.owner
        self._origin = ORIGIN.get()
        self.truncated = draft.prompt.truncated
        self.unfollowed = [left.place for left in draft.steering.left]
        """The places of schemas that the output may not follow."""
        self.headers: dict[str, str] = {}
        """HTTP headers about the limits of its owner and the engine that makes it."""
        self.error: ApiError | None = None
        self.stop: str | None = None
        """The client's text at which it stopped."""
        self.draft: Draft | None = draft
        """None once the end is sent."""
        self._generation = generation
        self._commit = commit
        self._clock_s = parts.clock_s
        self._clock_ns = parts.clock_ns
        self._listeners = parts.listeners

    @property
    def id(self) -> str:
        return self.log.response.id

    @property
    def progress(self) -> Progress:
        made = self._generation
        return Progress(made.options.request_id, made.first_token_ns, len(self.reader.kept))

    @property
    def begun(self) -> bool:
        """Whether the engine has got a request."""
        return self._generation.requested_ns is not None

    @property
    def ending(self) -> bool:
        """Whether no more ids come, so that all that is not kept yet is kept with the end."""
        return self.log.closed or self._generation.last_token_ns is not None

    async def ended(self) -> None:
        """Wait until the end is stored and sent, for those who do not own the run."""
        while not self.log.closed:
            await self.log.changed()

    async def make(self) -> r.Response:
        """Generate to the end, store the record, then tell. Returns the last snapshot."""
        draft = self.draft
        assert draft is not None, "made once"
        self._open()
        try:
            try:
                end = await self._generation.end()
            finally:
                await draft.generated()
            last = self._last(end)
            for conclude in draft.joints["conclude"]:
                last = await conclude(last, self)
            self.error = end.error
            try:
                await self._commit(last, self)
            finally:
                await draft.stored()
        except asyncio.CancelledError:  # the owner was stopped; others may still be reading
            self._generation.close(stopped=False)
            self.log.wake()  # its stream does not come to its end, with which the last step leaves
            self._conclude(end := End("cancelled"), self._last(end))
            raise
        except Exception as fault:  # likewise the edge of a run
            end = self._generation.give_up(fault)
            last = self._last(end)
        finally:
            self._generation.abort()
            self._generation.leave()
        self._conclude(end, last)
        return last

    def _open(self) -> None:
        """Append the first events. The log of a response that is queued has them already."""
        first = self.log.begun
        if not self.log.entries:
            self.log.append(e.Created(first))
        if first.status != "in_progress":
            first = replace(first, status="in_progress")
        self.log.append(e.InProgress(first))
        self.log.wake()

    def cancel(self) -> None:
        """Stop now: the owner has left, or the client cancels. Synchronous and idempotent."""
        self.end_as(End("cancelled"))

    def end_as(self, end: End) -> bool:
        """Stop now, with this end. Returns whether nothing had been decided yet."""
        return self._generation.decide(end)

    async def abandon(self) -> None:
        """Give up a run that will not be made: those who wait for its end see that it was
        cancelled."""
        self._generation.leave()
        if not self.log.closed:
            self.log.settle(replace(self.log.response, status="cancelled"))
            self.log.close()
        if self.draft is not None:
            await self.draft.release()

    async def outlive(self, lease_s: float) -> None:
        """Keep what it holds for so long after this server has died: another may go on with it."""
        if self.draft is not None:
            for outlive in self.draft.joints["outlive"]:
                await outlive(lease_s)

    def leave(self) -> None:
        """Hold nothing for it any more here, and free nothing: another server goes on with it."""
        if self.draft is not None:
            self.draft.left = True

    @property
    def options(self) -> GenerateOptions:
        """The engine's options, but for each segment's own."""
        return self._generation.options

    @property
    def prompt_ids(self) -> Sequence[int]:
        return self._generation.prompt_ids

    @property
    def half_way(self) -> bool:
        """Whether it writes what no other engine could go on with."""
        return self._generation.half_way

    def pause(self) -> bool:
        """Wait, if the engine is at work on it, until there is another engine. Returns whether it
        is at work."""
        return self._generation.pause()

    def shut_down(self) -> None:
        """Leave the run to another server, or fail it, since this server ends."""
        if self.leave_to_others is None or not self.leave_to_others():
            self.fail(ServerShutdown())

    def fail(self, error: ApiError) -> None:
        """Stop now, with a reason: a drain's deadline, or a reader that is too slow."""
        self.end_as(End("failed", error))

    def _conclude(self, end: End, last: r.Response) -> None:
        """Append the terminal event, close the log and tell the listeners, once the record is
        stored."""
        self.error, self.stop = end.error, end.stop
        self._tell(last, end)
        self.log.close()
        self._report(last)
        self._generation.forget()
        self.draft = None

    def _report(self, last: r.Response) -> None:
        """Tell each listener; a fault of one is logged and hurts no other."""
        facts = self.facts(last)
        for listener in self._listeners:
            try:
                listener.run_ended(facts)
            except Exception:
                logger.exception("failed to notify a listener of %s", last.id)

    def _tell(self, last: r.Response, end: End) -> None:
        for event in ending(last, end.error, end.stop):
            self.log.append(event)
        if last.status == "cancelled":  # it has no event in the API; the snapshot says it
            self.log.settle(last)

    def _last(self, end: End) -> r.Response:
        output = self.log.output
        used = self._generation.usage(output)
        return last_snapshot(self.log.begun, output, end, int(self._clock_s()), used)

    def facts(self, last: r.Response) -> RunFacts:
        """What listeners get of the run, made before it drops its prompt."""
        return RunFacts(
            response=last,
            repairs=dict(self._generation.machine.repairs),
            arrival_ns=self._generation.options.arrival_ns,
            requested_ns=self._generation.requested_ns,
            first_token_ns=self._generation.first_token_ns,
            last_token_ns=self._generation.last_token_ns,
            end_ns=self._clock_ns(),
            trace=self._generation.trace(self.owner),
            ends=self._generation.ends,
            origin=self._origin,
            tool_runs=self._generation.notes.tool_runs,
        )

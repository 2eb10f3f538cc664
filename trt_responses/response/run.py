"""A response being made: it owns the engine requests, the log, and the end.

Stream, plain and background are readers of the log; nothing here knows which of them there is. A
run ends once, in one of four ways, and `make` is the only place that writes the end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from trt_responses.errors import ApiError
from trt_responses.frozen import dataclass, replace
from trt_responses.harmony.fragments import Closed
from trt_responses.response.end import End, end_of, ending, last_snapshot, usage
from trt_responses.wire import events as e

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from trt_responses.engine.base import Chunk, Engine, GenerateOptions, Handle
    from trt_responses.harmony.fragments import RepairKind
    from trt_responses.harmony.gate import Gate
    from trt_responses.harmony.read import Reader
    from trt_responses.harmony.steer import Plan, Segment
    from trt_responses.response.log import Log
    from trt_responses.response.machine import Machine
    from trt_responses.wire import response as r

logger = logging.getLogger(__name__)

NO_TEXT: Callable[[int], bytes | None] = dict[int, bytes]().get

CONTINUATION_PRIORITY = 1.0
"""Later segments of a run go ahead of new requests: a run is never left waiting half-way."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a listener hears of a run when it is over."""

    response: r.Response
    repairs: Mapping[RepairKind, int]
    arrival_ns: int
    first_token_ns: int | None
    end_ns: int


class Listener(Protocol):
    def run_ended(self, facts: RunFacts) -> None: ...


class Run:
    """One response, from its first event to its last. The owner awaits `make`."""

    def __init__(
        self,
        *,
        prompt_ids: Sequence[int],
        plan: Plan,
        options: GenerateOptions,
        engine: Engine,
        reader: Reader,
        machine: Machine,
        log: Log,
        commit: Callable[[r.Response, Run], Awaitable[None]],
        clock_s: Callable[[], float],
        clock_ns: Callable[[], int],
        listener: Listener | None = None,
        seal: Callable[[r.Response, Run], Awaitable[r.Response]] | None = None,
        truncated: Sequence[str] = (),
    ) -> None:
        self.log = log
        self.truncated = truncated
        self._seal = seal
        self.reader = reader
        self.error: ApiError | None = None
        self._prompt_ids = prompt_ids
        self._plan = plan
        self._options = options
        self._engine = engine
        self._machine = machine
        self._commit = commit
        self._clock_s = clock_s
        self._clock_ns = clock_ns
        self._listener = listener
        self._handle: Handle | None = None
        self._segment_end: asyncio.Future[End] | None = None
        self._gate: Gate | None = None
        self._asked = False
        self._explains = logger.isEnabledFor(logging.DEBUG)
        self._notes: list[str] = []
        self._verdict: End | None = None
        self._flow(None)
        self._first_token_ns: int | None = None
        self._cached_tokens: int | None = None

    # --- the engine's side --------------------------------------------------------------------

    def push(self, chunk: Chunk) -> None:
        """One engine step: read, decide, append, wake. The hot path of the whole server."""
        token_ids, reader = chunk.token_ids, self.reader
        if len(token_ids) != 1 or chunk.finish or not reader.clear:
            self._push(chunk)
        elif piece := self._plain(token_ids[0]):
            reader.kept.append(token_ids[0])
            self.log.say(piece)
        else:
            self._push(chunk)

    def _flow(self, said: list[bytes] | None) -> None:
        """Where text can only go; None while a gate, a verdict or the first chunk stands before
        it. `_plain` finds the text of an id that is all text, and nothing when there is no way."""
        self._said = said
        self._plain = NO_TEXT if said is None else self.reader.plain.get

    def _push(self, chunk: Chunk) -> None:
        """A step that may be more than text, or is several ids of it."""
        said = self._said
        if said is None or chunk.finish or not self.reader.text(chunk.token_ids, said):
            self._look(chunk)
        else:
            self.log.wake()

    def _look(self, chunk: Chunk) -> None:
        """A step that may be anything."""
        if self._verdict is not None:
            return  # it was on its way when the run was stopped
        try:
            token_ids, gate = chunk.token_ids, self._gate
            if gate is not None:
                token_ids = gate.admit(token_ids)
                if chunk.finish is not None:
                    token_ids = (*token_ids, *gate.finish(chunk.finish))
            self._read(token_ids)
            if self._first_token_ns is None:
                self._first_chunk(chunk)
            elif gate is None:
                self._flow(self._machine.pieces)
            if gate is not None and gate.fault is not None:
                self._decide(End("failed", gate.fault))
            elif self.reader.ended or (gate is not None and gate.over):
                if chunk.finish is None:
                    self._abort()
                self._finish_segment(End("completed"))
            elif chunk.finish is not None:
                self._finish_segment(end_of(chunk))
        except Exception as fault:  # the edge of a run: whatever broke, the client hears an end
            self._decide(self._broken(fault))
        self.log.wake()

    def _read(self, token_ids: Sequence[int]) -> None:
        for fragment in self.reader.feed(token_ids):
            self._machine.take(fragment)

    def _first_chunk(self, chunk: Chunk) -> None:
        if chunk.token_ids:
            self._first_token_ns = self._clock_ns()
        if self._cached_tokens is None:
            self._cached_tokens = chunk.cached_tokens

    # --- the owner's side ---------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.log.response.id

    async def ended(self) -> None:
        """When its end is stored and told, for those who do not own it."""
        while not self.log.closed:
            await self.log.changed()

    async def make(self) -> r.Response:
        """Generate to the end, store the record, then tell. Returns the last snapshot."""
        self._open()
        try:
            end = await self._generate_all()
            self._end_items(stopped=end.status == "completed")
            last = self._last(end)
            if self._seal is not None:
                last = await self._seal(last, self)
            self.error = end.error
            await self._commit(last, self)
        except asyncio.CancelledError:  # the owner was stopped; others may still be reading
            self._end_items(stopped=False)
            self._conclude(end := End("cancelled"), self._last(end))
            raise
        except Exception as fault:  # likewise the edge of a run
            self._machine.take(Closed(whole=False))
            end = self._broken(fault)
            last = self._last(end)
        finally:
            self._abort()
        self._conclude(end, last)
        return last

    def _open(self) -> None:
        """A response that is queued has been told so before; its log begins with it."""
        first = self.log.response
        if not self.log.entries:
            self.log.append(e.Created(first))
        if first.status != "in_progress":
            first = replace(first, status="in_progress")
        self.log.append(e.InProgress(first))
        self.log.wake()

    def cancel(self) -> None:
        """Stop now: the owner has left, or the client has asked. Synchronous and idempotent."""
        self._decide(End("cancelled"))

    def abandon(self) -> None:
        """Nobody will make it: those who wait for its end hear that it was cancelled."""
        if not self.log.closed:
            self.log.settle(replace(self.log.response, status="cancelled"))
            self.log.close()

    def fail(self, error: ApiError) -> None:
        """Stop now, and say why: a drain's deadline, a reader that is too slow."""
        self._decide(End("failed", error))

    def _decide(self, end: End) -> None:
        if self._verdict is None:
            self._verdict = end
            self._flow(None)
            self._abort()
            self._finish_segment(end)

    def _abort(self) -> None:
        if self._handle is not None:
            self._handle.abort()
            self._handle = None

    async def _generate_all(self) -> End:
        end = End("completed")
        while self._verdict is None and (segment := self._plan.next(self.reader)) is not None:
            before = len(self.reader.kept)
            end = await self._generate(segment)
            if self._explains:
                self._note(segment, len(self.reader.kept) - before, end)
            if end.status != "completed":
                break
        return self._verdict or end

    async def _generate(self, segment: Segment) -> End:
        if segment.max_tokens < 1:
            return End("incomplete")
        first = not self._asked
        self._asked = True
        self._read(segment.forced)
        self._gate = segment.gate
        self._flow(None)
        self._segment_end = asyncio.get_running_loop().create_future()
        options = replace(
            self._options,
            max_tokens=segment.max_tokens,
            stop_ids=segment.stop_ids,
            guide=segment.guide,
            banned_ids=segment.banned_ids,
            priority=self._options.priority if first else CONTINUATION_PRIORITY,
        )
        kept = self.reader.kept
        prompt = [*self._prompt_ids, *kept] if kept else self._prompt_ids
        try:
            self._handle = self._engine.generate(prompt, options, self)
        except ApiError as error:
            return End("failed", error)
        return await self._segment_end

    def _note(self, segment: Segment, kept: int, end: End) -> None:
        self._notes.append(f"{segment.told(kept)} {end.status}")

    def _finish_segment(self, end: End) -> None:
        if self._segment_end is not None and not self._segment_end.done():
            self._segment_end.set_result(end)

    def _broken(self, fault: Exception) -> End:
        if isinstance(fault, ApiError):
            return End("failed", fault)
        logger.exception("response %s broke while it was made", self._options.request_id)
        name = type(fault).__name__
        return End("failed", ApiError(f"The server failed while it made the answer ({name})."))

    # --- the end ------------------------------------------------------------------------------

    def _end_items(self, *, stopped: bool) -> None:
        for fragment in self.reader.finish(stopped=stopped):
            self._machine.take(fragment)

    def _conclude(self, end: End, last: r.Response) -> None:
        """The record is stored: append the terminal event, close the log, tell the listener."""
        self.error = end.error
        self._tell(last, end)
        self.log.close()
        if self._notes:
            notes = "; ".join(self._notes)
            logger.debug("%s %s: %s", self._options.request_id, self._plan, notes)
        self._report(last)
        # Whoever still holds the run wants its log, and not the conversation before it.
        self._prompt_ids, self._commit, self._seal = (), _committed, None

    def _report(self, last: r.Response) -> None:
        """To the listener, whose own faults are its own."""
        if self._listener is None:
            return
        try:
            self._listener.run_ended(self._facts(last))
        except Exception:
            logger.exception("the listener of %s broke", last.id)

    def _tell(self, last: r.Response, end: End) -> None:
        for event in ending(last, end.error):
            self.log.append(event)
        if last.status == "cancelled":  # it has no event in the API; the snapshot says it
            self.log.settle(last)

    def _last(self, end: End) -> r.Response:
        output = self.log.output
        told = usage(len(self._prompt_ids), self.reader, output, self._cached_tokens)
        return last_snapshot(self.log.begun, output, end, int(self._clock_s()), told)

    def _facts(self, last: r.Response) -> RunFacts:
        return RunFacts(
            response=last,
            repairs=dict(self._machine.repairs),
            arrival_ns=self._options.arrival_ns,
            first_token_ns=self._first_token_ns,
            end_ns=self._clock_ns(),
        )


async def _committed(last: r.Response, run: Run) -> None:
    """What is left of a commit."""

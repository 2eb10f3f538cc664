"""The life of a generation: it asks the engine for one segment after another, turn by turn.

What the engine gives goes to the sink (`sink.py`). Knows the plan and the engine's seam; knows no
store, and not how a response ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from trt_responses.engine import CONTINUATION_PRIORITY, Chunk
from trt_responses.errors import ApiError, EngineUnavailable
from trt_responses.frozen import replace
from trt_responses.language.fragments import Closed
from trt_responses.run.ending import End
from trt_responses.run.sink import Beginnings, Sink, broken
from trt_responses.run.turns import Notes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from trt_responses.engine import Engine, GenerateOptions
    from trt_responses.language.gate import Gate
    from trt_responses.language.reader import Reader
    from trt_responses.language.steering import Segment, SteeringPlan
    from trt_responses.log.fold import Output
    from trt_responses.log.log import Log
    from trt_responses.log.machine import Machine
    from trt_responses.run.admission import Place
    from trt_responses.run.turns import Turn
    from trt_responses.wire.response import Usage

    Resume = Callable[["Generation", Segment, End], Awaitable[End]]
    """Generates the rest of a segment whose engine went away, with this end. Returns its end."""

T = TypeVar("T")


class Chance(Protocol):
    """May give one more turn when no step does."""

    def wanted(self, generation: Generation) -> bool: ...

    async def turn(self, generation: Generation) -> Turn | None: ...


class SegmentNotes(Protocol):
    """The notes of an engine request that goes on."""

    def ended(self, end: End, now_ns: int, metrics: Mapping[str, float] | None) -> object:
        """What is kept of it. `metrics` are the engine's own."""
        ...


class Recorder(NamedTuple):
    """Notes each run, id by id."""

    begin: Callable[[Segment, Reader, int], SegmentNotes]
    """Called as an engine request begins, with the time."""
    trace: Callable[[Generation, str], object]
    """Of a generation that is over, and its owner: what listeners hear."""


class Joints(NamedTuple):
    """The steps between the turns of a run."""

    before: Sequence[Callable[[Generation], Coroutine[Any, Any, Turn | End | None]]] = ()
    """Before the first turn: another turn in its place, or the end of all."""
    after: Sequence[Callable[[Generation], Coroutine[Any, Any, Turn | None]]] = ()
    """Behind a turn that was completed: one more."""
    second: Chance | None = None
    """Called last, for a run that answers a conversation."""


NO_JOINTS = Joints()


class Generation:
    """A row of engine requests. Its run awaits `end`."""

    def __init__(
        self,
        *,
        prompt_ids: Sequence[int],
        plan: SteeringPlan,
        options: GenerateOptions,
        engine: Engine,
        reader: Reader,
        machine: Machine,
        log: Log,
        clock_ns: Callable[[], int],
        place: Place | None = None,
        resume: Resume | None = None,
        joints: Joints = NO_JOINTS,
        notes: Notes | None = None,
        sink: Callable[..., Sink] = Sink,
        recorder: Recorder | None = None,
    ) -> None:
        """With a `place`, the engine gets a request when its turn has come; without `resume`, a run
        whose engine went away has failed."""
        self._joints = joints
        self.notes = Notes() if notes is None else notes
        self.reader = reader
        self.machine = machine
        self.log = log
        self.options = options
        self.prompt_tokens = len(prompt_ids)
        self.requested_ns: int | None = None
        self.last_token_ns: int | None = None
        self.prompt_ids = prompt_ids
        self.base = prompt_ids
        """The prompt of the present turn, and how many of the ids that count stand in it."""
        self._within = 0
        self.plan = plan
        self._engine = engine
        self._clock_ns = clock_ns
        self._place = place
        self._resume = resume
        self._beginnings = Beginnings(clock_ns)
        self._sink: Sink = sink(reader, machine, log, self._beginnings)
        self._segment_from = 0
        """Where the model's own text of the present segment begins."""
        self._guided = False
        self._ends: list[End] = []
        self._recorder = recorder
        self.segments: list[object] = []
        """What the recorder notes of each."""

    async def end(self) -> End:
        """Generate to the end, and close what is open."""
        try:
            end = await self._all()
        finally:
            self.last_token_ns = self._clock_ns()
            self.leave()  # while its end is stored, the engine may be at the next one
        self.close(stopped=end.status == "completed" and end.stop is None)
        return end

    def close(self, *, stopped: bool) -> None:
        """End the open item, which the model has ended itself if `stopped`, and which is cut
        otherwise."""
        for fragment in self.reader.finish(stopped=stopped):
            self.machine.take(fragment)
        self.machine.answer()

    def give_up(self, fault: Exception) -> End:
        """End what is open as cut, since something broke, and return the end."""
        self.machine.take(Closed(whole=False))
        return broken(fault, self.options.request_id)

    @property
    def verdict(self) -> End | None:
        """How the run ends, once that is decided."""
        return self._sink.verdict

    def decide(self, end: End) -> bool:
        """Stop now. Returns whether nothing had been decided yet."""
        if not self._sink.decide(end):
            return False
        self.leave()
        return True

    def pause(self) -> bool:
        """Take the present request from the engine, which is exchanged: the segment goes on with
        the next one. Returns whether there was a request."""
        return self._sink.lose()

    def abort(self) -> None:
        self._sink.abort()

    def trace(self, owner: str) -> object:
        """What a recorder says of the generation, once it is over."""
        return None if self._recorder is None else self._recorder.trace(self, owner)

    @property
    def ends(self) -> tuple[End, ...]:
        """How each engine request ended."""
        return tuple(self._ends)

    @property
    def cached_tokens(self) -> Sequence[int | None]:
        """The cached tokens of each turn's prompt, as the engine reports."""
        return self._beginnings.cached_tokens

    def usage(self, output: Output) -> Usage:
        """The tokens of all engine requests."""
        return self.notes.usage_of(
            self.prompt_tokens, self.reader, output, self._beginnings.cached_tokens
        )

    def leave(self) -> None:
        """Give up the place in the engine, since no more requests come."""
        if self._place is not None:
            self._place.leave(len(self.reader.kept))
            self._place = None

    def forget(self) -> None:
        """Drop the prompt: later readers of the run need its log, and not the conversation before
        it."""
        self.prompt_ids = self.base = ()
        self._joints = NO_JOINTS
        self.notes.continuation = None
        self.segments.clear()

    async def _all(self) -> End:
        if self._place is not None and (turn := self._place.turn()) is not None:
            await turn
        sink = self._sink
        for step in self._joints.before:
            made = None if sink.verdict is not None else await self.wait_for(step(self))
            if isinstance(made, End):
                return sink.verdict or made
            self._take(made)
        end = sink.verdict or await self._turn()
        while end.status == "completed" and sink.verdict is None and await self._goes_on():
            end = await self._turn()
        return sink.verdict or end

    async def _goes_on(self) -> bool:
        """Whether a step gives one more turn."""
        for step in self._joints.after:
            if self._take(await self.wait_for(step(self))):
                return True
            if self._sink.verdict is not None:
                return False
        second = self._joints.second
        if second is not None and second.wanted(self):
            return self._take(await self.wait_for(second.turn(self)))
        return False

    def _take(self, turn: Turn | None) -> bool:
        """Whether there is a turn; then it is the next one."""
        if turn is None:
            return False
        self.plan = turn.plan
        if turn.prompt is not None:
            self.base, self._within = turn.prompt, len(self.reader.kept)
        return True

    async def wait_for(self, step: Coroutine[Any, Any, T]) -> T | None:
        """Let a step do its work; a verdict breaks it off."""
        decided, working = self._sink.wait(), asyncio.create_task(step)
        try:
            await asyncio.wait((working, decided), return_when=asyncio.FIRST_COMPLETED)
            return await working if self._sink.verdict is None else None
        finally:
            working.cancel()
            await asyncio.wait((working,))
            self.log.wake()

    @property
    def first_token_ns(self) -> int | None:
        return self._beginnings.first_token_ns

    @property
    def written(self) -> Sequence[int]:
        """The ids behind the prompt of the present turn."""
        return self.reader.kept[self._within :]

    @property
    def context_used(self) -> int:
        """The tokens of the context that the prompt and what is behind it take."""
        return len(self.base) - self._within + len(self.reader.kept)

    async def _turn(self) -> End:
        self._beginnings.turn()
        self._sink.awaited = True
        end = End("completed")
        while self._sink.verdict is None and (segment := self.plan.next(self.reader)) is not None:
            end = await self._segment(segment)
            if end.status != "completed":
                break
        return end

    async def _segment(self, segment: Segment) -> End:
        """Generate one segment, also where its engine goes away."""
        self._segment_from = len(self.reader.kept) + len(segment.forced)
        self._guided = segment.guide is not None
        end = await self.request(segment)
        if end.lost is None or self._resume is None or self._sink.verdict is not None:
            return end
        return await self._resume(self, segment, end)

    @property
    def half_way(self) -> bool:
        """Whether a text under a guide has been begun, which no other engine can go on with."""
        return self._guided and len(self.reader.kept) > self._segment_from

    def room(self, segment: Segment) -> int:
        """The tokens that the present segment has left."""
        return segment.max_tokens - (len(self.reader.kept) - self._segment_from)

    def run_out(self) -> asyncio.Future[End]:
        """End the present segment, which has no tokens left."""
        ended = self._sink.wait()
        self._sink.push(Chunk(finish="length"))
        return ended

    async def request(self, segment: Segment) -> End:
        """Generate a segment, or the rest of it, in one engine request."""
        recorder, end = self._recorder, End("cancelled")
        notes = recorder and recorder.begin(segment, self.reader, self._clock_ns())
        try:
            end = await self._generate(segment)
        finally:
            self._ends.append(end)
            if notes is not None:
                self.segments.append(notes.ended(end, self._clock_ns(), self._sink.metrics))
        return end

    async def _generate(self, segment: Segment) -> End:
        if segment.max_tokens < 1:
            return End("incomplete")
        first = self.requested_ns is None
        if first:
            self.requested_ns = self._clock_ns()
        sink = self._sink
        sink.read(segment.forced)
        ended = sink.begin(segment.gate)
        options = replace(
            self.options,
            max_tokens=segment.max_tokens,
            stop_ids=segment.stop_ids,
            guide=segment.guide,
            banned_ids=segment.banned_ids,
            priority=self.options.priority if first else CONTINUATION_PRIORITY,
        )
        kept = self.written
        prompt = [*self.base, *kept] if kept else self.base
        try:
            sink.handle = self._engine.generate(prompt, options, sink)
        except EngineUnavailable as error:  # between two segments it may have gone away
            return End("failed", error, lost=None if first else "exchanged")
        except ApiError as error:
            return End("failed", error)
        end = await ended
        sink.handle = None  # the engine has ended the request
        if segment.gate is not None and segment.gate.unjudged and sink.verdict is None:
            return await self._judged(segment.gate)
        return end

    async def _judged(self, gate: Gate) -> End:
        """Judge a long text in a thread, since that may hold the loop."""
        closing = await asyncio.to_thread(gate.judge)
        if self._sink.verdict is None and gate.fault is not None:
            return End("failed", gate.fault)
        if self._sink.verdict is None:
            self._sink.read(closing)
            self.log.wake()
        return End("completed")

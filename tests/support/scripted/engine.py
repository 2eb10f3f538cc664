"""An engine that replays scripts: real batching, stops and failures, without a model.

One clock drives all requests: each step advances every running one, and every push happens inside
that step, so that tests count steps and never wait for time.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from tests.support.scripted.clock import StepClock as StepClock
from tests.support.scripted.script import Die as Die
from tests.support.scripted.script import Scored as Scored
from tests.support.scripted.script import Script as Script
from tests.support.scripted.script import Stall as Stall
from tests.support.scripted.script import Step as Step
from trt_responses.engine import (
    EXTRAS,
    Chunk,
    Finish,
    GenerateOptions,
    GuideKind,
    Health,
    Limits,
    Logprob,
    Loss,
    Sink,
)
from trt_responses.engines.admission import room
from trt_responses.errors import EngineUnavailable

State = Literal["waiting", "running", "finished", "aborted"]


class Request:
    """One request and its progress in its script. Also its handle."""

    __slots__ = (
        "_engine",
        "_left",
        "_script",
        "_stops",
        "chunks",
        "options",
        "plain_steps",
        "prompt_ids",
        "sink",
        "state",
        "steps_made",
    )

    def __init__(
        self,
        engine: ScriptedEngine,
        prompt_ids: Sequence[int],
        options: GenerateOptions,
        script: Script,
        sink: Sink,
        left: int,
    ) -> None:
        self.prompt_ids = prompt_ids
        self.options = options
        self.state: State = "waiting"
        self.steps_made = 0
        self._engine = engine
        self._script = script
        self.sink: Sink | None = sink
        self._stops = frozenset(options.stop_ids)
        self.chunks = script.chunks
        self.plain_steps = 0
        """The number of chunks that can be pushed unchanged; after them `advance` decides."""
        if options.logprobs is None and script.cached_tokens is None:
            self.plain_steps = script.plain_steps(self._stops, left)
        self._left = left - script.ids_before[self.plain_steps]  # after the plain steps

    @property
    def held_tokens(self) -> int:
        return len(self.prompt_ids) + self._script.ids_before[self.steps_made]

    def abort(self) -> None:
        if self.state in ("waiting", "running"):
            self._leave("aborted")

    def fail(self, reason: str, *, lost: Loss | None = None) -> None:
        if self.state in ("waiting", "running"):
            self._end("error", error=reason, lost=lost)

    def advance(self) -> None:
        """Make one step of the script that is not plain: at most one push."""
        position = self.steps_made
        self.steps_made = position + 1
        if self._left <= 0:
            return self._end("length")
        if position == len(self._script.steps):  # only a script without steps gets here
            return self._end(self._script.finish)
        step = self._script.steps[position]
        if isinstance(step, tuple):
            return self._say(step, None)
        match step:
            case Scored(logprobs):
                return self._say(tuple(entry.token_id for entry in logprobs), logprobs)
            case Die(message):
                return self._end("error", error=message)
            case Stall():
                return self._engine.stalled(self)

    def _say(self, ids: tuple[int, ...], scored: tuple[Logprob, ...] | None) -> None:
        finish: Finish | None = None
        stop_id = None
        if not self._stops.isdisjoint(ids):
            end = min(ids.index(stop) for stop in self._stops.intersection(ids)) + 1
            ids, finish, stop_id = ids[:end], "stop", ids[end - 1]
        if len(ids) > self._left or (len(ids) == self._left and finish is None):
            ids, finish, stop_id = ids[: self._left], "length", None
        elif finish is None and self.steps_made == len(self._script.steps):
            finish = self._script.finish
        self._left -= len(ids)
        count = self.options.logprobs
        logprobs = () if count is None else _logprobs(ids, scored, count)
        if finish is not None:
            self._end(finish, ids, logprobs, stop_id=stop_id)
        elif self.sink is not None:
            self.sink.push(Chunk(ids, logprobs, self._cached()))

    def _end(
        self,
        finish: Finish,
        ids: tuple[int, ...] = (),
        logprobs: tuple[Logprob, ...] = (),
        *,
        stop_id: int | None = None,
        error: str | None = None,
        lost: Loss | None = None,
    ) -> None:
        sink, cached = self.sink, self._cached()
        self._leave("finished")
        metrics = self._script.metrics if self.options.metrics else None
        if sink is not None:
            sink.push(
                Chunk(ids, logprobs, cached, finish, stop_id, error, lost=lost, metrics=metrics)
            )

    def _cached(self) -> int | None:
        return self._script.cached_tokens if self.steps_made == 1 else None

    def _leave(self, state: State) -> None:
        self.state = state
        self.plain_steps = 0
        self.sink = None  # a kept request must not keep a whole run alive
        self._engine.left(self)


class ScriptedEngine:
    """Replays one script per request. `scripts`: a sequence, whose last one repeats, or a callable
    that returns a script for a prompt."""

    def __init__(
        self,
        scripts: Sequence[Script] | Callable[[Sequence[int], GenerateOptions], Script],
        *,
        clock: StepClock | None = None,
        context_tokens: int = 131_072,
        max_batch: int = 64,
        max_logprobs: int = 20,
        guides: Mapping[GuideKind, frozenset[int]] | None = None,
        ignores: frozenset[str] = frozenset(),
        adapters: tuple[str, ...] = (),
        extras: frozenset[str] = EXTRAS,
        keep_records: int = 1024,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.requests: deque[Request] = deque(maxlen=keep_records)
        self.clock = clock or StepClock()
        self._scripts = scripts
        self._limits = Limits(
            context_tokens,
            max_batch,
            guides or {},
            max_logprobs,
            ignores=ignores,
            adapters=adapters,
            extras=extras,
        )
        self._now_ns = now_ns
        self._last_progress_ns = now_ns()
        self._stepped = False
        self._count = itertools.count()
        self._waiting: list[tuple[float, int, Request]] = []
        self._running: tuple[Request, ...] = ()  # replaced on each change, never mutated
        self._stalled: dict[Request, None] = {}  # in the order in which they stalled
        self._down: str | None = "The engine has not been started."
        self._alive = True

    async def start(self) -> None:
        self._down = None
        self._last_progress_ns = self._now_ns()
        self.clock.drive(self._advance)

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Request:
        if self._down is not None:
            raise EngineUnavailable(self._down)
        left = room(len(prompt_ids), options, self._limits)
        number = next(self._count)
        script = self._script(number, prompt_ids, options)
        request = Request(self, prompt_ids, options, script, sink, left)
        self.requests.append(request)
        heapq.heappush(self._waiting, (-options.priority, number, request))
        self.clock.wake()
        return request

    def health(self) -> Health:
        if self._stepped:  # reading the clock at each step would cost as much as the step
            self._stepped, self._last_progress_ns = False, self._now_ns()
        used = sum([each.held_tokens for each in (*self._running, *self._stalled)])
        use = used / (self._limits.context_tokens * self._limits.max_batch)
        return Health(self._alive, self._down is None, self._last_progress_ns, self._down, use)

    def limits(self) -> Limits:
        return self._limits

    async def stop(self, deadline_s: float) -> None:
        self._end_all("The engine has been stopped.")

    def kill(self, reason: str) -> None:
        """Fail permanently: every request fails, and no new one is accepted."""
        self._alive = False
        self._end_all(reason)

    def go(self, loss: Loss, reason: str) -> None:
        """Fail all requests as lost; `start` starts the engine again."""
        self._end_all(reason, lost=loss)

    @property
    def stands_still(self) -> bool:
        """Whether there are requests and all of them are stalled."""
        return bool(self._stalled) and not self._running

    def stalled(self, request: Request) -> None:
        """Note that a request stalls: it keeps its place and gives the clock no work."""
        self._remove(request)
        self._stalled[request] = None

    def left(self, request: Request) -> None:
        if request in self._stalled:
            del self._stalled[request]
            self.clock.wake()  # its place is free for a waiting request
        elif request in self._running:
            self._remove(request)

    def _remove(self, request: Request) -> None:
        self._running = tuple(each for each in self._running if each is not request)

    def _script(self, number: int, prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        if callable(self._scripts):
            return self._scripts(prompt_ids, options)
        return self._scripts[min(number, len(self._scripts) - 1)]

    def _advance(self) -> bool:
        """Make one step of all running requests. Returns whether there is more work."""
        if self._waiting:
            self._admit()
        if running := self._running:
            self._stepped = True
            for request in running:  # a push may abort any of them
                position = request.steps_made
                if position < request.plain_steps:
                    request.steps_made = position + 1
                    request.sink.push(request.chunks[position])  # type: ignore[union-attr, arg-type]
                elif request.state == "running":
                    request.advance()
            if self._running:
                return True
        return bool(self._waiting) and self._has_place()

    def _admit(self) -> None:
        while self._waiting and self._has_place():
            request = heapq.heappop(self._waiting)[2]
            if request.state == "waiting":
                request.state = "running"
                self._running += (request,)

    def _has_place(self) -> bool:
        return len(self._running) + len(self._stalled) < self._limits.max_batch

    def _end_all(self, reason: str, *, lost: Loss | None = None) -> None:
        self._down = reason
        waiting = [entry[2] for entry in self._waiting]
        for request in (*self._running, *self._stalled, *waiting):
            request.fail(reason, lost=lost)
        self._waiting.clear()


def _logprobs(
    ids: tuple[int, ...], scored: tuple[Logprob, ...] | None, count: int
) -> tuple[Logprob, ...]:
    """Log probabilities of replayed ids: from the script, or else certain."""
    entries = scored or tuple(Logprob(i, 0.0, ((i, 0.0),)) for i in ids)
    return tuple(Logprob(e.token_id, e.logprob, e.top[:count]) for e in entries[: len(ids)])

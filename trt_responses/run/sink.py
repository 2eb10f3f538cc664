"""The sink of a run's engine requests: an engine's step becomes fragments, events and frames.

All of that is done before `push` returns, except that the frames of a segment's last step may leave
with what the run tells next. Knows the reader, the gate of a steered segment, the machine and the
log; knows no engine, no plan, and not what follows a segment.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from trt_responses.engine import Chunk
from trt_responses.errors import ApiError
from trt_responses.language.fragments import Closed
from trt_responses.run.ending import End, end_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.engine import Handle
    from trt_responses.language.gate import Gate
    from trt_responses.language.reader import Reader
    from trt_responses.log.log import Log
    from trt_responses.log.machine import Machine

logger = logging.getLogger(__name__)

NO_TEXT: Mapping[int, bytes] = {}


class Beginnings:
    """Notes the first ids of each turn."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.first_token_ns: int | None = None
        self.cached_tokens: list[int | None] = []
        """The cached tokens of each turn's prompt, as the engine reports."""
        self._turn_begins = False
        self._clock_ns = clock_ns

    def turn(self) -> None:
        """Begin a turn."""
        self._turn_begins = True
        self.cached_tokens.append(None)

    def note(self, chunk: Chunk) -> bool:
        """Note what this chunk begins. Returns whether the turn's first ids are still to come."""
        if self._turn_begins:
            if chunk.token_ids:
                self._turn_begins = False
                if self.first_token_ns is None:
                    self.first_token_ns = self._clock_ns()
            if self.cached_tokens[-1] is None:
                self.cached_tokens[-1] = chunk.cached_tokens
        return self._turn_begins


class Sink:
    """Takes the steps of one engine request after another. The run awaits `ended`."""

    def __init__(self, reader: Reader, machine: Machine, log: Log, beginnings: Beginnings) -> None:
        self.reader = reader
        self.machine = machine
        self.log = log
        self.gate: Gate | None = None
        """Of the present segment, if that is steered."""
        self.handle: Handle | None = None
        """The engine's present request."""
        self.ended: asyncio.Future[End] | None = None
        """Is done when the present segment, or what the run waits for, is over."""
        self.verdict: End | None = None
        """How the run ends, once that is decided: later steps are dropped."""
        self.metrics: Mapping[str, float] | None = None
        """The engine's own, of the segment that ended last."""
        self.awaited = True
        """Whether the next step may be the first of a turn."""
        self._beginnings = beginnings
        self._plain = NO_TEXT

    def push(self, chunk: Chunk) -> None:
        """One engine step: read, decide, append, wake. The hot path of the whole server."""
        token_ids, reader = chunk.token_ids, self.reader
        if len(token_ids) != 1 or chunk.finish or not reader.clear:
            self._push(chunk)
        elif piece := self._plain.get(token_ids[0]):
            reader.kept.append(token_ids[0])
            self.log.add_text(piece)
        else:
            self._push(chunk)

    def _push(self, chunk: Chunk) -> None:
        """Take a step that may be more than text, or is several ids of it."""
        pieces = self.machine.pieces if self._plain else None
        if pieces is None or chunk.finish or not self.reader.text(chunk.token_ids, pieces):
            self._look(chunk)
        else:
            self.log.wake()

    def _look(self, chunk: Chunk) -> None:
        """Take a step of any kind."""
        if self.verdict is not None:
            return  # it was on its way when the run was stopped
        try:
            token_ids, gate = chunk.token_ids, self.gate
            self.metrics = chunk.metrics
            if gate is not None:
                token_ids = gate.admit(token_ids)
                if chunk.finish is not None:
                    token_ids = (*token_ids, *gate.finish(chunk.finish))
            self.read(token_ids)
            if self.awaited:
                self.awaited = self._beginnings.note(chunk)
            elif gate is None:
                # Text can only go where the machine's goes: each id of `plain` is known to be text.
                self._plain = NO_TEXT if self.machine.pieces is None else self.reader.plain
            if gate is not None and gate.fault is not None:
                self.decide(End("failed", gate.fault))
            elif (stop := self.machine.stopped) is not None:
                self.machine.take(Closed(whole=True))
                self.decide(End("completed", stop=stop))
            elif self.reader.ended or (gate is not None and gate.over):
                if chunk.finish is None:
                    self.abort()
                self._end(End("completed"))
            elif chunk.finish is not None:
                self._end(end_of(chunk))
        except Exception as fault:  # the edge of a run: whatever broke, the client hears an end
            self.decide(broken(fault, self.log.begun.id))
        if self.ended is None or not self.ended.done():
            self.log.wake()
        else:  # behind the run's next step: what ends the response may leave in the same send
            self.ended.get_loop().call_soon(self.log.wake)

    def read(self, token_ids: Sequence[int]) -> None:
        """Read ids that count, from the engine or in its place."""
        for fragment in self.reader.feed(token_ids):
            self.machine.take(fragment)

    def begin(self, gate: Gate | None) -> asyncio.Future[End]:
        """Begin a segment. Returns a future of its end."""
        self.gate = gate
        self._plain = NO_TEXT
        return self.wait()

    def wait(self) -> asyncio.Future[End]:
        """A future that a verdict or the end of a segment makes done."""
        self.ended = asyncio.get_running_loop().create_future()
        return self.ended

    def decide(self, end: End) -> bool:
        """Stop now. Returns whether nothing had been decided yet."""
        if self.verdict is not None:
            return False
        self.verdict = end
        self._plain = NO_TEXT
        self.abort()
        self._end(end)
        return True

    def lose(self) -> bool:
        """Take the present request from the engine, which is exchanged. Returns whether there was
        one: a request whose last token has come waits for nothing."""
        ended = self.ended is None or self.ended.done()
        if ended or self.handle is None or self.verdict is not None:
            return False
        self.abort()
        self._look(Chunk(finish="error", error="another version is loaded", lost="exchanged"))
        return True

    def abort(self) -> None:
        if self.handle is not None:
            self.handle.abort()
            self.handle = None

    def _end(self, end: End) -> None:
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(end)


def broken(fault: Exception, response_id: str) -> End:
    """The end of a run in which something broke."""
    if isinstance(fault, ApiError):
        return End("failed", fault)
    logger.exception("failed to make response %s", response_id)
    name = type(fault).__name__
    return End("failed", ApiError(f"The server failed while it made the answer ({name})."))

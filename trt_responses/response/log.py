"""The append-only list of a response's events; everything a client can ask for is a view of it.

Two rules for the file: an entry never changes once the next one stands (only the last may grow, by
deltas), and nothing here knows who reads. A run of deltas is one growing entry: no event object, no
frame and no copy of the text is made for a token. Events are made from entries for tests, for
replay and for the fold; frames are made when somebody reads them.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from trt_responses.response.fold import apply, output_after
from trt_responses.wire.dialect import OPENAI
from trt_responses.wire.events import Lifecycle, OutputEvent, OutputTextDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from trt_responses.response.fold import Output
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.events import Delta, Event
    from trt_responses.wire.items import TokenLogprob
    from trt_responses.wire.response import Response

END_OF_STREAM = b"data: [DONE]\n\n"


def _tail(number: int) -> bytes:
    return b'","sequence_number":%d}\n\n' % number


TABLED = 16_384
TAILS = tuple(map(_tail, range(TABLED)))
"""What ends the frame of a delta, by its number: to format it costs as much as all the rest."""


class Single:
    """One event. Its frame is made at the first reading and kept."""

    __slots__ = ("_dialect", "_frame", "event", "first")

    def __init__(self, first: int, event: Event, dialect: Dialect = OPENAI) -> None:
        self.first = first
        self.event = event
        self._dialect = dialect
        self._frame: bytes | None = None

    def __len__(self) -> int:
        return 1

    def frames(self, start: int) -> list[bytes]:
        if start:
            return []
        if self._frame is None:
            self._frame = _frame(self.event, self.first, self._dialect)
        return [self._frame]

    def events(self) -> Iterable[Event]:
        return (self.event,)

    def merged(self) -> Event:
        return self.event


class Deltas:
    """A run of deltas of one text: the first sequence number, and a piece for each."""

    __slots__ = ("_template", "first", "head", "pieces")

    def __init__(self, first: int, template: Delta, dialect: Dialect = OPENAI) -> None:
        self.first = first
        self.pieces: list[bytes] = []
        self._template = template
        self.head = _delta_head(template, dialect)

    def __len__(self) -> int:
        return len(self.pieces)

    def frames(self, start: int) -> list[bytes]:
        head, pieces, number = self.head, self.pieces, self.first + start
        tails = TAILS[number : number + len(pieces) - start]
        if len(tails) < len(pieces) - start:
            tails = tuple(map(_tail, range(number, self.first + len(pieces))))
        return [head + piece + end for piece, end in zip(pieces[start:], tails, strict=True)]

    def events(self) -> Iterable[Event]:
        return (replace(self._template, delta=_text((piece,))) for piece in self.pieces)

    def merged(self) -> Delta:
        return replace(self._template, delta=_text(self.pieces))


class ScoredDeltas(Deltas):
    """Deltas of a text whose tokens are told with how likely they were: a tuple for each piece."""

    __slots__ = ("logprobs",)

    def __init__(self, first: int, template: Delta, dialect: Dialect) -> None:
        super().__init__(first, template, dialect)
        self.head = _delta_head(template, dialect, "logprobs")
        self.logprobs: list[tuple[TokenLogprob, ...]] = []

    def frames(self, start: int) -> list[bytes]:
        scored = zip(self.pieces[start:], self.logprobs[start:], strict=True)
        return [
            b'%b%b","logprobs":%b,"sequence_number":%d}\n\n'
            % (self.head, piece, orjson.dumps(logprobs), number)
            for number, (piece, logprobs) in enumerate(scored, self.first + start)
        ]

    def events(self) -> Iterable[Event]:
        for piece, logprobs in zip(self.pieces, self.logprobs, strict=True):
            yield self._told((piece,), logprobs)

    def merged(self) -> Delta:
        logprobs = tuple(entry for entries in self.logprobs for entry in entries)
        return self._told(self.pieces, logprobs)

    def _told(self, pieces: Sequence[bytes], logprobs: tuple[TokenLogprob, ...]) -> Delta:
        assert isinstance(self._template, OutputTextDelta)
        return replace(self._template, delta=_text(pieces), logprobs=logprobs)


Entry = Single | Deltas


class Log:
    """A response's events so far, and the response that they fold to."""

    def __init__(self, response: Response, dialect: Dialect = OPENAI) -> None:
        self.entries: list[Entry] = []
        self.dialect = dialect
        self.closed = False
        self._folded = response
        self._output = response.output
        self._growing: Deltas | None = None
        self._listeners: list[Callable[[], None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def append(self, event: Event) -> None:
        self._settle()
        self.entries.append(Single(self.next_number, event, self.dialect))
        if isinstance(event, OutputEvent):
            self._output = output_after(self._output, event)
        elif isinstance(event, Lifecycle):
            self._folded = apply(self._folded, event)
            self._output = self._folded.output

    def grow(self, template: Delta, *, scored: bool = False) -> Deltas:
        """Begin a run of deltas; whoever writes the text adds pieces to it."""
        self._settle()
        kind = ScoredDeltas if scored else Deltas
        self._growing = kind(self.next_number, template, self.dialect)
        self.entries.append(self._growing)
        return self._growing

    def close(self) -> None:
        self._settle()
        self.closed = True
        self.wake()

    @property
    def next_number(self) -> int:
        if not self.entries:
            return 0
        last = self.entries[-1]
        return last.first + len(last)

    @property
    def response(self) -> Response:
        """The fold of everything so far; a growing text is included and stays growing."""
        output = self.output
        if output is self._folded.output:
            return self._folded
        return replace(self._folded, output=output)

    @property
    def begun(self) -> Response:
        """The response as its last event of the whole of it said: its items may have gone on."""
        return self._folded

    @property
    def output(self) -> Output:
        """The response's items: the part of it that events change one by one."""
        if self._growing is None:
            return self._output
        return output_after(self._output, self._growing.merged())

    def settled(self) -> Output:
        """The items, with no text growing any more: it is whole, and read once for all."""
        self._settle()
        return self._output

    def settle(self, response: Response) -> None:
        """Set the last snapshot of a log that ends without an event: a cancelled run's."""
        self._settle()
        self._folded, self._output = response, response.output

    def _settle(self) -> None:
        self._output, self._growing = self.output, None

    def events(self) -> Iterator[tuple[int, Event]]:
        """Every event with its number, made anew: for tests, replay and the store."""
        for entry in self.entries:
            yield from enumerate(entry.events(), entry.first)

    def wake(self) -> None:
        """Tell the readers: once per chunk, however many events it made."""
        for tell in self._listeners:
            tell()
        if self._waiting:
            for reader in self._waiting:
                if not reader.done():
                    reader.set_result(None)
            self._waiting.clear()

    def listen(self, tell: Callable[[], None]) -> None:
        """Call it within each wake, for a reader to whom a turn of the loop is too dear."""
        self._listeners.append(tell)

    def unlisten(self, tell: Callable[[], None]) -> None:
        """Whoever has left is not told any more; not to be called within a wake."""
        self._listeners.remove(tell)

    def changed(self) -> asyncio.Future[None]:
        """Done at the next wake."""
        if self._loop is None:  # asking for it costs a system call
            self._loop = asyncio.get_running_loop()
        reader = self._loop.create_future()
        self._waiting.append(reader)
        return reader


class Cursor:
    """One reader's place in a log: it takes what is new as the bytes of SSE frames."""

    __slots__ = ("_entries", "_entry", "_taken", "_wanted")

    def __init__(self, log: Log, *, after: int = -1) -> None:
        self._entries = log.entries
        self._entry = 0
        self._taken = 0
        self._wanted = max(0, after + 1)  # the number to begin with; 0 once its place is found

    def _reached(self) -> bool:
        """Whether the log has got to where this reader begins, which may lie in its future."""
        entries = self._entries
        while self._entry < len(entries):
            entry = entries[self._entry]
            if self._wanted < entry.first + len(entry):
                self._taken, self._wanted = self._wanted - entry.first, 0
                return True
            if self._entry == len(entries) - 1:
                break  # it may still grow
            self._entry += 1
        return False

    def take(self) -> bytes:
        """The frames since the last taking, joined; empty when there are none."""
        entries, taken = self._entries, self._taken
        if (
            len(entries) == self._entry + 1
            and not self._wanted
            and type(last := entries[-1]) is Deltas
        ):
            pieces, number = last.pieces, last.first + taken
            if len(pieces) == taken + 1 and number < TABLED:  # an engine step of one id: no lists
                self._taken = taken + 1
                return last.head + pieces[taken] + TAILS[number]
        return self._take(entries)

    def _take(self, entries: Sequence[Entry]) -> bytes:
        if not entries or (self._wanted and not self._reached()):
            return b""
        frames = entries[self._entry].frames(self._taken)
        self._taken += len(frames)
        while self._entry < len(entries) - 1:
            self._entry += 1
            more = entries[self._entry].frames(0)
            self._taken = len(more)
            frames += more
        return frames[0] if len(frames) == 1 else b"".join(frames)


def _frame(event: Event, number: int, dialect: Dialect) -> bytes:
    name, body = dialect.spelled(event)
    return b'event: %b\ndata: %b,"sequence_number":%d}\n\n' % (name.encode(), body[:-1], number)


def _delta_head(template: Delta, dialect: Dialect, *without: str) -> bytes:
    """A delta's frame up to where its text begins."""
    name, body = dialect.spelled(template)
    shape = orjson.loads(body)
    for key in ("delta", *without):
        del shape[key]
    return b'event: %b\ndata: %b,"delta":"' % (name.encode(), orjson.dumps(shape)[:-1])


def _text(pieces: Sequence[bytes]) -> str:
    text: str = orjson.loads(b'"%b"' % b"".join(pieces))
    return text

"""The append-only list of a response's events; everything a client can ask for is a view of it.

Two rules for the file: an entry never changes once the next one stands (only the last may grow, by
deltas), and nothing here knows who reads. A run of deltas is one growing entry: no event object, no
frame and no copy of the text is made for a token. Events are made from entries for tests, for
replay and for the fold; frames are made when somebody reads them.

A token's whole path, within one engine step and one turn of the event loop:

1. `engines/<kind>/engine.py` pushes a `Chunk` of ids into the sink.
2. `run/sink.py` asks the gate of a steered segment (`language/gate.py`) which of the ids count, and
   hands them to the reader.
3. `harmony/read/reader.py` makes the ids text of the open message: a piece of JSON for each.
4. `log/machine.py` has decided where such pieces go: into the log's last entry, `Deltas`
   (`entries.py`). Whatever is more than text goes through it as fragments, and becomes events
   (`item_events.py`) that are appended here and folded (`fold.py`).
5. `Log.add_text` or `Log.wake` here makes the step's frames once, and hands the bytes to each
   listener.
6. `web/stream/sse.py` is the listener of a stream, and gives the bytes to the server's `send`.
7. uvicorn's protocol (`features/connections/`) writes them to the socket before `push` returns.

Steps 2 to 5 are one dictionary look-up and two appends for an id that is only text: `push`,
`Reader.plain` and `add_text`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from trt_responses.frozen import replace
from trt_responses.log.entries import (
    TABLED,
    Deltas,
    Entry,
    ResponsesSpelling,
    Single,
    Spelling,
)
from trt_responses.log.fold import Output, output_after
from trt_responses.wire.dialect import OPENAI, Dialect
from trt_responses.wire.events import Delta, Error, Event, OfResponse
from trt_responses.wire.response import Response

Tell = Callable[[bytes | None], None]

END_OF_STREAM = b"data: [DONE]\n\n"


class Log:
    """A response's events so far, and the response that they fold to."""

    def __init__(
        self, response: Response, dialect: Dialect = OPENAI, spelling: Spelling | None = None
    ) -> None:
        """Without a spelling, the log is written as the Responses API's in this dialect."""
        self.entries: list[Entry] = []
        self.dialect = dialect
        self._spelling = spelling or ResponsesSpelling(dialect)
        self.closed = False
        self.closing: list[Callable[[], None]] = []
        """Called before the last step, at the end of the log."""
        self.begun = response
        """The response as the last whole snapshot has it; its items may have gone on."""
        self._output = response.output
        self._settled = 0
        """The events of all entries but the growing one: how many there are, and their first
        number."""
        self._growing: Deltas | None = None
        self._listeners: list[Tell] = []
        self._early: dict[Tell, Tell] = {}
        self._untold = 0
        self._live: Deltas | None = None
        """The last entry, while its next delta is the first event that was not sent."""
        self._waiting: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def append(self, event: Event) -> None:
        if self._growing is not None:
            self._settle()
        self.entries.append(Single(self._settled, event, self._spelling))
        self._settled += 1
        if isinstance(event, OfResponse):
            self.begun, self._output = event.response, event.response.output
        elif not isinstance(event, Error):
            self._output = output_after(self._output, event)

    def grow(self, template: Delta, *, scored: bool = False) -> Deltas:
        """Begin a run of deltas; callers add pieces to the entry that is returned."""
        self._settle()
        self._growing = self._spelling.deltas(self._settled, template, scored=scored)
        self.entries.append(self._growing)
        return self._growing

    def close(self) -> None:
        self._settle()
        self.closed = True
        for closing in self.closing:
            closing()
        self.wake()
        for tell in tuple(self._listeners):
            tell(None)

    @property
    def next_number(self) -> int:
        growing = self._growing
        return self._settled if growing is None else self._settled + len(growing.pieces)

    @property
    def response(self) -> Response:
        """The fold of everything so far; a growing text is included and stays growing."""
        output = self.output
        if output is self.begun.output:
            return self.begun
        return replace(self.begun, output=output)

    def json_of(self, response: Response) -> bytes:
        """A snapshot as JSON: the same bytes for the record and for the event that tells of it."""
        return self._spelling.json_of(response)

    def repeated(self, after: int) -> bytes:
        """A frame without news, for a reader of the events after this number: it has the number of
        the last event, so that a reader who resumes there misses nothing and gets nothing twice.
        Empty where the API has no such event."""
        return self._spelling.repeated(self.begun, max(self.next_number - 1, after))

    @property
    def output(self) -> Output:
        """The items of the response, which events change one by one."""
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
        self.begun, self._output = response, response.output

    def _settle(self) -> None:
        if self._growing is not None:
            self._output, self._settled = self.output, self.next_number
            self._growing = self._live = None

    def renumber(self, number: int) -> None:
        """Set the number of the next event. It is for a log that was made again, before it is read:
        its earlier events have been sent, perhaps in other pieces."""
        shift = number - self.next_number
        if not shift:
            return
        del self.entries[: -1 if self._growing is not None else None]
        self._settled += shift
        if self._growing is not None:
            self._growing.first += shift

    def events(self) -> Iterator[tuple[int, Event]]:
        """Every event with its number, made anew: for tests, replay and the store."""
        for entry in self.entries:
            yield from enumerate(entry.events(), entry.first)

    def wake(self) -> None:
        """Tell the readers, once per chunk, however many events it made."""
        if self._listeners:
            live, number = self._live, self._untold
            if live is None:
                self._tell()
            elif count := live.first + len(live.pieces) - number:
                self._untold = number + count
                if count == 1 and number < TABLED:  # an engine step of one id: no lists
                    frames = live.head + live.pieces[-1] + live.tails[number]
                else:
                    frames = b"".join(live.frames(number - live.first))
                for tell in self._listeners:
                    tell(frames)
        if self._waiting:
            for reader in self._waiting:
                if not reader.done():
                    reader.set_result(None)
            self._waiting.clear()

    def add_text(self, piece: bytes) -> None:
        """Add one piece to the text that grows, and wake the readers: what most engine steps do."""
        if (live := self._live) is None:
            assert self._growing is not None, "no text is growing"
            self._growing.pieces.append(piece)
            self.wake()
            return
        live.pieces.append(piece)
        number = self._untold
        self._untold = number + 1
        frames = live.head + piece + (live.tails[number] if number < TABLED else live.tail(number))
        for tell in self._listeners:
            tell(frames)

    def _tell(self) -> None:
        """Tell the readers what came with a step of any kind."""
        growing, number = self._growing, self._settled
        if growing is not None:  # `next_number`, without a call at each id of a header
            number += len(growing.pieces)
        if number > self._untold:
            frames = self._since(self._untold)
            self._untold, last = number, self.entries[-1]
            self._live = last if last is self._growing and type(last) is Deltas else None
            if frames:  # an API may have no words for an event
                for tell in self._listeners:
                    tell(frames)

    def _since(self, number: int) -> bytes:
        """The frames from this number on, which are the last few entries'."""
        entries, place = self.entries, len(self.entries) - 1
        while entries[place].first > number:
            place -= 1
        frames = entries[place].frames(number - entries[place].first)
        for entry in entries[place + 1 :]:
            frames += entry.frames(0)
        return b"".join(frames)

    def listen(self, tell: Tell, *, after: int = -1) -> bytes:
        """The frames beyond a number. `tell` is called with later ones within each wake, for a
        reader that cannot spare a turn of the loop. None when there will be no more. It must not be
        called within a wake."""
        if self._listeners:
            self.wake()
        else:
            self._untold, self._live = self.next_number, None
        if after < 0 and not self.entries:
            self._listeners.append(tell)
            return b""
        cursor = Cursor(self, after=after)
        missed = cursor.take()
        if not cursor.begun:
            self._early[tell] = _from_its_beginning(cursor, tell)
        self._listeners.append(self._early.get(tell, tell))
        return missed

    def unlisten(self, tell: Tell) -> None:
        """Stop calling `tell`. It must not be called within a wake."""
        self._listeners.remove(self._early.pop(tell, tell))

    def changed(self) -> asyncio.Future[None]:
        """A future that is done at the next wake."""
        if self._loop is None:  # asking for it costs a system call
            self._loop = asyncio.get_running_loop()
        reader = self._loop.create_future()
        self._waiting.append(reader)
        self._live = None  # the next wake is to look around
        return reader


class Cursor:
    """One reader's place in a log. It takes what is new as the bytes of SSE frames."""

    __slots__ = ("_entries", "_entry", "_read", "_wanted")

    def __init__(self, log: Log, *, after: int = -1) -> None:
        self._entries = log.entries
        self._entry = 0
        self._read = 0
        self._wanted = max(0, after + 1)  # the number to begin with; 0 once its place is found

    def _reached(self) -> bool:
        entries = self._entries
        while self._entry < len(entries):
            entry = entries[self._entry]
            if self._wanted < entry.first + len(entry):
                self._read, self._wanted = self._wanted - entry.first, 0
                return True
            if self._entry == len(entries) - 1:
                break  # it may still grow
            self._entry += 1
        return False

    @property
    def begun(self) -> bool:
        """Whether the log has got to where this reader begins."""
        return not self._wanted or self._reached()

    def take(self) -> bytes:
        """The frames since the last call, joined; empty when there are none."""
        entries = self._entries
        if not entries or not self.begun:
            return b""
        frames = entries[self._entry].frames(self._read)
        self._read += len(frames)
        while self._entry < len(entries) - 1:
            self._entry += 1
            more = entries[self._entry].frames(0)
            self._read = len(more)
            frames += more
        return frames[0] if len(frames) == 1 else b"".join(frames)


def _from_its_beginning(cursor: Cursor, tell: Tell) -> Tell:
    """Call `tell` from the cursor's beginning on, for a reader who begins in the log's future."""

    def send(frames: bytes | None) -> None:
        if frames is None or (frames := cursor.take()):
            tell(frames)

    return send

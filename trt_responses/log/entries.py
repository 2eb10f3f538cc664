"""The entries of a log: single events, and runs of deltas, of which no event is ever made.

An entry knows its events and their numbers, and makes their frames; when one ends and the next
begins is the log's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Protocol

import orjson

from trt_responses.frozen import replace
from trt_responses.wire.dialect import OPENAI, Dialect
from trt_responses.wire.events import (
    Delta,
    Event,
    InProgress,
    OfResponse,
    OutputTextDelta,
    Queued,
)
from trt_responses.wire.output import TokenLogprob
from trt_responses.wire.response import EchoedTools, Response


def tail(number: int) -> bytes:
    """The end of a delta's frame with this number."""
    return b'","sequence_number":%d}\n\n' % number


TABLED = 16_384
TAILS = tuple(map(tail, range(TABLED)))
"""The end of a delta's frame, by its number: to format it costs as much as all the rest."""


RESPONSE = b'%b{"response":%b,"type":"%b"%b,"sequence_number":%d}\n\n'
EVENT = b'%b%.*b%b,"sequence_number":%d}\n\n'
"""Frames, each made in one copy: the item of an MCP server's list may have half a megabyte. An
event's JSON goes up to its last brace."""


@lru_cache(maxsize=256)
def _line(name: str) -> bytes:
    """The beginning of a frame, by the event's name."""
    return b"event: %b\ndata: " % name.encode()


def unnumbered(tail: bytes) -> tuple[bytes, ...]:
    """The end of a frame without a number, which is one for all."""
    return (tail,) * TABLED


class Spelling(Protocol):
    """The way in which the events of one log are written as frames. Each API has its own."""

    def frame(self, event: Event, number: int, /) -> bytes:
        """The frame of one event; empty where the API has no words for it."""
        ...

    def deltas(self, first: int, template: Delta, /, *, scored: bool) -> Deltas:
        """The entry of a run of deltas that begins."""
        ...

    def repeated(self, response: Response, number: int, /) -> bytes:
        """A frame that repeats the response's state; empty where the API has none."""
        ...

    def json_of(self, response: Response, /) -> bytes:
        """The JSON of a snapshot, as the store keeps it."""
        ...


class ResponsesSpelling:
    """The spelling of the Responses API, in one of its dialects. A snapshot that several events
    hold is written once."""

    __slots__ = ("_dialect", "_json", "_snapshot")

    def __init__(self, dialect: Dialect = OPENAI) -> None:
        self._dialect = dialect
        self._snapshot: Response | None = None
        self._json = b""

    def json_of(self, response: Response) -> bytes:
        if response is not self._snapshot:
            self._snapshot, tools = response, response.tools
            if isinstance(tools, EchoedTools) and tools:
                response = replace(response, tools=tools.json)
            self._json = bytes(memoryview(orjson.dumps(response)))  # as `lasting_json` does
        return self._json

    def frame(self, event: Event, number: int) -> bytes:
        if isinstance(event, OfResponse):
            before, more = self._around(event.type)
            json = self.json_of(event.response)
            return RESPONSE % (before, json, event.type.encode(), more, number)
        name, body = self._dialect.spelled(event)
        before, more = self._around(name)
        return EVENT % (before, len(body) - 1, body, more, number)

    def _around(self, name: str) -> tuple[bytes, bytes]:
        """What stands before an event's JSON, and its further keys."""
        return _line(name), b""

    def repeated(self, response: Response, number: int) -> bytes:
        kind = Queued if response.status == "queued" else InProgress
        return self.frame(kind(response), number)

    def deltas(self, first: int, template: Delta, *, scored: bool) -> Deltas:
        if scored:
            return ScoredDeltas(first, template, self._head(template, b'"logprobs":[],'))
        return Deltas(first, template, self._head(template))

    def _head(self, template: Delta, *without: bytes) -> bytes:
        """The part of a delta's frame before its text."""
        name, body = self._dialect.spelled(template)
        for empty in (b'"delta":"",', *without):
            body = body.replace(empty, b"")
        before, more = self._around(name)
        return before + body[:-1] + more + b',"delta":"'


class Single:
    """One event, whose frame is made when it is read first and kept."""

    __slots__ = ("_frame", "_spelling", "event", "first")

    def __init__(self, first: int, event: Event, spelling: Spelling) -> None:
        self.first = first
        self.event = event
        self._spelling = spelling
        self._frame: bytes | None = None

    def __len__(self) -> int:
        return 1

    def frames(self, start: int) -> list[bytes]:
        if start:
            return []
        if self._frame is None:
            self._frame = self._spelling.frame(self.event, self.first)
        return [self._frame]

    def events(self) -> Iterable[Event]:
        return (self.event,)

    def merged(self) -> Event:
        return self.event


class Deltas:
    """A run of deltas of one text: the first sequence number, and a piece for each.

    A frame is the head, a piece, and the tail of its number: one of `tails`, and beyond them what
    `tail` makes.
    """

    __slots__ = ("_template", "first", "head", "pieces", "tail", "tails")

    def __init__(
        self,
        first: int,
        template: Delta,
        head: bytes,
        tails: tuple[bytes, ...] = TAILS,
        tail: Callable[[int], bytes] = tail,
    ) -> None:
        self.first = first
        self.pieces: list[bytes] = []
        self.head = head
        self.tails = tails
        self.tail = tail
        self._template = template

    def __len__(self) -> int:
        return len(self.pieces)

    def frames(self, start: int) -> list[bytes]:
        head, pieces, number = self.head, self.pieces, self.first + start
        tails = self.tails[number : number + len(pieces) - start]
        if len(tails) < len(pieces) - start:
            tails = tuple(map(self.tail, range(number, self.first + len(pieces))))
        return [head + piece + end for piece, end in zip(pieces[start:], tails, strict=True)]

    def events(self) -> Iterable[Event]:
        return (replace(self._template, delta=_text((piece,))) for piece in self.pieces)

    def merged(self) -> Delta:
        return replace(self._template, delta=_text(self.pieces))


class ScoredDeltas(Deltas):
    """Deltas of a text with each token's logprobs, a tuple for each piece."""

    __slots__ = ("logprobs",)

    def __init__(self, first: int, template: Delta, head: bytes) -> None:
        super().__init__(first, template, head)
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
            yield self._delta((piece,), logprobs)

    def merged(self) -> Delta:
        logprobs = tuple(entry for entries in self.logprobs for entry in entries)
        return self._delta(self.pieces, logprobs)

    def _delta(self, pieces: Sequence[bytes], logprobs: tuple[TokenLogprob, ...]) -> Delta:
        assert isinstance(self._template, OutputTextDelta)
        return replace(self._template, delta=_text(pieces), logprobs=logprobs)


Entry = Single | Deltas


def _text(pieces: Sequence[bytes]) -> str:
    text: str = orjson.loads(b'"%b"' % b"".join(pieces))
    return text

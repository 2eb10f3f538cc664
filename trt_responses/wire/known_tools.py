"""Lists of tools that came before: an agent brings the same ones with each request.

A list is known by the bytes in which it was sent. When they come again they are not parsed, and
what others make of the list is made once, too. Knows no tool's meaning.
"""

from __future__ import annotations

import json
import marshal
import re
import secrets
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from trt_responses.errors import InvalidRequest
from trt_responses.wire.base import Read
from trt_responses.wire.tools import DATED, KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from trt_responses.wire.tools import Tool

T = TypeVar("T")
M = TypeVar("M")

KNOWN_BYTES = 2 << 20
"""JSON of all lists that are kept. What is made of a list takes some twelve times as much."""
MOST_BYTES = 256 << 10
"""The JSON of the longest list that is kept: to find its end takes some milliseconds."""
KEPT = frozenset((*KINDS, *DATED)) - {"mcp"}
"""Kinds of tools that are kept: an MCP server's headers are secrets."""
LIST = re.compile(rb'"tools"\s*:\s*(?=\[)')
"""What stands before a list of tools. Within a text it could not, for its quotation marks would
have backslashes; but in another object than the request it could."""
NAME = b'"tools"'
LOOKED_AT = 4
"""Such places of a body at which a list is looked for, the last ones: clients write it late."""
BEGINNING = 64
"""Bytes of a list by which others are told from it at once; a shorter one is not kept."""
MOST_ALIKE = 32
"""Lists that are kept of those that begin alike, which are looked through one by one."""
STANDS_FOR = secrets.token_hex(16).encode()
"""A text that stands where a list stood. No client can know it."""
DECODER = json.JSONDecoder()
ONE_SPELLING = 0
"""The version of `marshal` that writes no references, so that equal values are written alike."""


class Known(Read[T]):
    """A list that nobody changes, and what was made of it."""

    __slots__ = ("_made",)

    def __init__(self, entries: Iterable[T] = ()) -> None:
        super().__init__(entries)
        self._made: dict[Hashable, Any] = {}

    def once(self, name: Hashable, make: Callable[[], M]) -> M:
        """What `make` returns, the first time that something of this name is asked for. It must
        depend on nothing but the list and the name."""
        if name not in self._made:
            self._made[name] = make()
        made: M = self._made[name]
        return made


NO_ENTRIES: Known[Any] = Known()
"""The list of most requests, which bring no tools."""


def known(entries: Iterable[T]) -> Known[T]:
    """The same entries as a list that remembers; the very list if it is one."""
    if isinstance(entries, Known):
        return entries
    return Known(entries) if entries else NO_ENTRIES


def once(entries: Iterable[Any], name: Hashable, make: Callable[[], M]) -> M:
    """What `make` returns, which is made once for a list that remembers."""
    return entries.once(name, make) if isinstance(entries, Known) else make()


class SentTools(list[Any]):
    """A list of tools as it was parsed, and the bytes in which it was sent."""

    __slots__ = ("sent",)

    def __init__(self, entries: Iterable[Any], sent: bytes) -> None:
        super().__init__(entries)
        self.sent = sent


class KnownTools:
    """The lists that came lately, by their bytes. The longest unused go first."""

    def __init__(self, limit_bytes: int = KNOWN_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._lists: OrderedDict[bytes, Known[Tool]] = OrderedDict()
        self._by_beginning: dict[bytes, list[bytes]] = {}

    def parsed(self, body: bytes, parse: Callable[[bytes], Any]) -> Any:
        """The JSON of a body. Its `tools` are a `Known` list if they came before, and `SentTools`
        where `keep` can keep them."""
        places = [*_places(body)]
        for start in places:
            if (sent := self._known_at(body, start)) is not None:
                end = start + len(sent)
                with suppress(InvalidRequest):  # which tells another place than the whole would
                    fields = parse(b'%b"%b"%b' % (body[:start], STANDS_FOR, body[end:]))
                    if isinstance(fields, dict) and fields.get("tools") == STANDS_FOR.decode():
                        self._lists.move_to_end(sent)
                        fields["tools"] = self._lists[sent]
                        return fields
        fields = parse(body)
        if places and isinstance(fields, dict) and isinstance(tools := fields.get("tools"), list):
            left = MOST_BYTES
            for start in places:
                sent = _list_at(body, start, left)
                if sent and _says(sent, tools, parse):
                    fields["tools"] = SentTools(tools, sent)
                    break
                left -= len(sent) or left
        return fields

    def keep(self, tools: SentTools) -> Read[Tool]:
        """The list, now that its entries are read; one that is kept from now on, if it may be."""
        sent = tools.sent
        if len(sent) < BEGINNING or not KEPT.issuperset(tool.type for tool in tools):
            return Read(tools)
        kept: Known[Tool] = Known(tools)
        alike = self._by_beginning.setdefault(sent[:BEGINNING], [])
        if sent not in self._lists:
            alike.append(sent)
            self._bytes += len(sent)
        self._lists[sent] = kept
        if len(alike) > MOST_ALIKE:
            self._drop(alike[0])
        while self._bytes > self._limit_bytes:
            self._drop(next(iter(self._lists)))
        return kept

    def _drop(self, sent: bytes) -> None:
        del self._lists[sent]
        self._bytes -= len(sent)
        alike = self._by_beginning[sent[:BEGINNING]]
        alike.remove(sent)
        if not alike:
            del self._by_beginning[sent[:BEGINNING]]

    def _known_at(self, body: bytes, start: int) -> bytes | None:
        """The known list that stands there. No list begins with another one, so there is one."""
        for sent in self._by_beginning.get(body[start : start + BEGINNING], ()):
            if body.startswith(sent, start):
                return sent
        return None


KNOWN = KnownTools()


def _places(body: bytes) -> Iterator[int]:
    """Where lists of tools begin, the last one first."""
    end = len(body)
    for _ in range(LOOKED_AT):
        if (at := body.rfind(NAME, 0, end)) < 0:
            return
        if found := LIST.match(body, at):
            yield found.end()
        end = at


def _list_at(body: bytes, start: int, at_most: int) -> bytes:
    """The bytes of the list that begins there; none when it is no JSON, or has more bytes."""
    # JSON's own characters are ASCII: in Latin-1, whose characters are one byte each, a list has
    # the same end as in UTF-8.
    text = body[start : start + at_most].decode("latin-1")
    try:
        _, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return b""
    return body[start : start + end]


def _says(sent: bytes, tools: list[Any], parse: Callable[[bytes], Any]) -> bool:
    """Whether these bytes say this list. Unlike `==`, marshal's tell 1 from 1.0 and true."""
    try:
        return marshal.dumps(parse(sent), ONE_SPELLING) == marshal.dumps(tools, ONE_SPELLING)
    except (InvalidRequest, ValueError):
        return False

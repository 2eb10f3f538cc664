"""Lists of tools that came before: an agent brings the same ones with each request.

A list is known by its JSON, and read once; what others make of it is made once, too. Knows no
tool's meaning.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from trt_responses.wire.tools import DATED, KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from trt_responses.wire.tools import Tool

T = TypeVar("T")
M = TypeVar("M")

KNOWN_BYTES = 2 << 20
"""JSON of all lists that are kept. What is made of a list takes some twelve times as much."""
MOST_BYTES = 1 << 20
"""The size of a body above which nothing is looked up, since that would hold the event loop."""
KEPT = frozenset((*KINDS, *DATED)) - {"mcp"}
"""Kinds of tools that are kept: an MCP server's headers are secrets."""
NULLS = (b":null", b",null", b"[null")
"""What stands where orjson has written null, which it writes for infinity, too."""


class Known(list[T]):
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


class KnownTools:
    """The lists that came lately, by their JSON. The longest unused go first."""

    def __init__(self, limit_bytes: int = KNOWN_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._lists: OrderedDict[bytes, Known[Tool]] = OrderedDict()

    def find(self, key: bytes) -> Known[Tool] | None:
        if (found := self._lists.get(key)) is not None:
            self._lists.move_to_end(key)
        return found

    def keep(self, key: bytes, tools: Iterable[Tool]) -> Known[Tool]:
        """The list, which is kept from now on."""
        kept = Known(tools)
        if key not in self._lists:
            self._lists[key] = kept
            self._bytes += len(key)
        while self._bytes > self._limit_bytes:
            oldest, _ = self._lists.popitem(last=False)
            self._bytes -= len(oldest)
        return kept


KNOWN = KnownTools()


def key_of(entries: Any) -> bytes | None:
    """The JSON by which a list of tools is known, as it was sent; None for what is not kept."""
    if not isinstance(entries, list) or not entries:
        return None
    try:
        if not KEPT.issuperset(entry["type"] for entry in entries):
            return None
        key = orjson.dumps(entries)
        if any(null in key for null in NULLS):
            return b"m" + marshal.dumps(entries, 0)  # which tells infinity from null
    except (KeyError, TypeError, ValueError):  # no tools, a number that is too large, or nesting
        return None
    return key

"""Lists that remember what was made of them: an agent brings the same tools with each request.

A folder may know a list by the bytes in which it was sent, and read it once. Knows no tool.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import wraps
from typing import Any, Protocol, TypeVar

from trt_responses.wire.base import Read

T = TypeVar("T")
M = TypeVar("M")
L = TypeVar("L", bound="Iterable[Any]")

NAME = b'"tools"'


class Known(Read[T]):
    """An immutable list with memoised derived values."""

    __slots__ = ("_made", "sent_bytes")

    def __init__(self, entries: Iterable[T] = (), sent_bytes: int = 0) -> None:
        super().__init__(entries)
        self.sent_bytes = sent_bytes
        self._made: dict[Hashable, Any] = {}

    def once(self, name: Hashable, make: Callable[[], M]) -> M:
        """The value named `name`, made by `make` on the first call. It must depend on nothing but
        the list and the name."""
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


def made_once(make: Callable[[L], M]) -> Callable[[L], M]:
    """A function of a list, which is called once for a list that remembers."""

    @wraps(make)
    def made(entries: L) -> M:
        if not isinstance(entries, Known):
            return make(entries)
        if make not in entries._made:
            entries._made[make] = make(entries)
        found: M = entries._made[make]
        return found

    return made


class Sent(list[Any]):
    """A list of tools as it was parsed, by a memory that can keep it."""

    def kept(self) -> Read[Any]:
        """The list, now that its entries are read."""
        raise NotImplementedError


class Memory(Protocol):
    """Knows the lists of tools that came lately."""

    def parsed(self, body: bytes, parse: Callable[[bytes], Any]) -> Any:
        """The JSON of a body. Its `tools` are a `Known` list if they came before, and `Sent` where
        they may be kept."""
        ...


MEMORIES: list[Memory] = []
"""The first one parses the bodies that name tools."""

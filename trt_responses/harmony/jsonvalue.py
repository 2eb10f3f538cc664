"""What a JSON value may be: the nodes that a schema is compiled to.

A node opens the readings of a text that `jsontext.Check` follows. It knows no schema keyword.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from trt_responses.harmony.jsoncontainers import BeforeColon, InArray, InName, InObject
from trt_responses.harmony.jsonscalars import QUOTE, InNumber, InString
from trt_responses.harmony.jsontext import Spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from decimal import Decimal

    from trt_responses.harmony.jsontext import Node, Seen, State

_DIGITS = frozenset(b"0123456789")


@dataclass(eq=False)
class Union:
    """Any of several. Made empty where a schema names itself, and filled later."""

    options: list[Node] = field(default_factory=list)

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        return [after for node in self.options for after in node.open(byte, text, up)]


@dataclass(frozen=True, eq=False)
class Constants:
    """One of some values, each in every spelling that a serialiser gives it."""

    texts: tuple[bytes, ...]

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        return Spelled([(option, up) for option in self.texts], 0).step(byte, text)


@dataclass(frozen=True, eq=False)
class String:
    least: int = 0
    most: int | None = None
    follows: Callable[[str], bool] | None = None
    most_bytes: float = float("inf")

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        return (InString(self, len(text), up),) if byte == QUOTE else ()

    def takes(self, value: str) -> bool:
        if len(value) < self.least or (self.most is not None and len(value) > self.most):
            return False
        return self.follows is None or self.follows(value)


@dataclass(frozen=True, eq=False)
class Number:
    integer: bool = False
    least: Decimal | None = None
    most: Decimal | None = None
    above: Decimal | None = None
    below: Decimal | None = None

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        place = "zero" if byte == ord("0") else "minus" if byte == ord("-") else "whole"
        return (InNumber(self, len(text), up, place),) if byte in _DIGITS or byte == 45 else ()

    def takes(self, value: Decimal) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )


@dataclass(eq=False)
class Array:
    """`first` are the nodes of the first elements; the others are `rest`, or there are none."""

    first: tuple[Node, ...] = ()
    rest: Node | None = None
    least: int = 0
    most: int | None = None

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        return (InArray(self, 0, up),) if byte == ord("[") else ()

    def element(self, place: int) -> Node | None:
        if self.most is not None and place >= self.most:
            return None
        return self.first[place] if place < len(self.first) else self.rest


@dataclass(eq=False)
class Object:
    """`members` by name; `rest` is what an unlisted member may be, or there are none."""

    members: dict[str, Node] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()
    rest: Node | None = None

    def __post_init__(self) -> None:
        self.places = {name: place for place, name in enumerate(self.members)}
        self.required = sum(1 << self.places[name] for name in self.needed)
        self._spelled = {name: spellings(name) for name in self.members}

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        return (InObject(self, 0, "first", up),) if byte == ord("{") else ()

    def names(self, seen: int, begin: int, up: State) -> Sequence[State]:
        """Behind the quote of a name: every listed one at most once."""
        listed: list[tuple[bytes, State]] = []
        for name, place in self.places.items():
            if not seen >> place & 1:
                member = InObject(self, seen | 1 << place, "next", up)
                after = BeforeColon(self.members[name], member)
                listed += ((spelled, after) for spelled in self._spelled[name])
        found: list[State] = [Spelled(listed, 1)] if listed else []
        return found if self.rest is None else [*found, InName(self, begin, seen, up)]


_CONTROLS = {orjson.dumps(chr(n)).decode()[1:-1]: f"\\u{n:04x}" for n in (*range(32), 127)}
"""How a control character is written in a compact text, and in hexadecimal."""
_WRITTEN = re.compile(r"\\(?:u[0-9a-f]{4}|.)|\x7f")
"""Every escape, so that none is begun in the midst of another; and DEL, which needs none."""


def spellings(value: object) -> tuple[bytes, ...]:
    """A value's compact texts: as it is, with everything beyond ASCII escaped, and either with its
    control characters in hexadecimal, as a guide may have them."""
    plain = orjson.dumps(value).decode()
    texts = (plain, re.sub("[^\x00-\x7f]", lambda found: _escape(found[0]), plain))
    again = (_WRITTEN.sub(by, text) for text in texts for by in (_hexadecimal, _capital))
    return tuple(dict.fromkeys(text.encode() for text in (*texts, *again)))


def _hexadecimal(found: re.Match[str]) -> str:
    return _CONTROLS.get(found[0], found[0])


def _capital(found: re.Match[str]) -> str:
    spelled = _hexadecimal(found)
    return spelled[:2] + spelled[2:].upper()


def _escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def constants(values: Iterable[object]) -> Node:
    """One of some values. A container is followed member by member, for it may hold blanks."""
    scalars: dict[bytes, None] = {}
    nodes: list[Node] = []
    for value in values:
        match value:
            case dict():
                members = {name: constants([inner]) for name, inner in value.items()}
                nodes.append(Object(members, frozenset(members)))
            case list():
                first = tuple(constants([inner]) for inner in value)
                nodes.append(Array(first, None, len(first), len(first)))
            case _:
                scalars |= dict.fromkeys(spellings(value))
    if scalars:
        nodes.append(Constants(tuple(scalars)))
    return nodes[0] if len(nodes) == 1 else Union(nodes)


_ANY_STRING = String()
ANY = Union()
ANY_OBJECT = Object(rest=ANY)
ANY.options += (
    _ANY_STRING,
    Number(),
    ANY_OBJECT,
    Array(rest=ANY),
    constants((True, False, None)),
)

"""What a JSON value may be: the nodes that a schema is compiled to.

A node opens the readings of a text that `jsontext.Check` follows. It knows no schema keyword.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import orjson

from trt_responses.harmony.jsoncontainers import BeforeColon, InArray, InName, InObject
from trt_responses.harmony.jsonscalars import QUOTE, InNumber, InPattern, InString
from trt_responses.harmony.jsontext import Spelled
from trt_responses.harmony.jsonwords import InWord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from decimal import Decimal

    from trt_responses.harmony.jsontext import Node, Seen, State
    from trt_responses.harmony.pattern import Pattern

_DIGITS = frozenset(b"0123456789")


@dataclass(eq=False)
class Union:
    """Any of several. Made empty where a schema names itself, and filled later."""

    options: list[Node] = field(default_factory=list)

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        return [after for node in self.options for after in node.open(byte, text, up)]


@dataclass(frozen=True, eq=False)
class Constants:
    """One of some values that are no strings, each as a serialiser writes it."""

    texts: tuple[bytes, ...]

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        return Spelled([(option, up) for option in self.texts], 0).step(byte, text)


@dataclass(frozen=True, eq=False)
class OneOf:
    """One of some strings."""

    words: tuple[str, ...]

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        if byte != QUOTE:
            return ()
        return (InWord(_Then(up, id(self)), len(text), [(word, None) for word in self.words]),)


class _Then(NamedTuple):
    """The same comes behind every word."""

    up: State
    node_id: int

    def behind(self, what: None) -> State:
        return self.up

    @property
    def key(self) -> tuple[object, ...]:
        return ("constant", self.node_id, self.up.key)


@dataclass(frozen=True, eq=False)
class String:
    """`follows` reads the whole value; a pattern is followed on the way."""

    least: int = 0
    most: int | None = None
    follows: Callable[[str], bool] | None = None
    most_bytes: float = float("inf")
    pattern: Pattern | None = None

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        if byte != QUOTE:
            return ()
        if self.pattern is not None:
            return (InPattern(self.pattern, len(text), up),)
        return (InString(self, len(text), up),)

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
        self._nodes = tuple(self.members.values())

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        return (InObject(self, 0, "first", up),) if byte == ord("{") else ()

    def names(self, seen: int, begin: int, up: State) -> Sequence[State]:
        """Behind the quote of a name: every listed one at most once."""
        listed = [(name, place) for name, place in self.places.items() if not seen >> place & 1]
        found: list[State] = []
        if listed:
            found.append(InWord(_Members(self, seen, up), begin, listed))
        return found if self.rest is None else [*found, InName(self, begin, seen, up)]

    def behind(self, place: int, seen: int, up: State) -> State:
        """Behind the listed name of that place."""
        return BeforeColon(self._nodes[place], InObject(self, seen | 1 << place, "next", up))


class _Members(NamedTuple):
    node: Object
    seen: int
    up: State

    def behind(self, what: int) -> State:
        return self.node.behind(what, self.seen, self.up)

    @property
    def key(self) -> tuple[object, ...]:
        return ("member", id(self.node), self.seen, id(self.up))


def constants(values: Iterable[object]) -> Node:
    """One of some values. A container is followed member by member, for it may hold blanks."""
    words: dict[str, None] = {}
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
            case str():
                words[value] = None
            case _:
                scalars[orjson.dumps(value)] = None
    if words:
        nodes.append(OneOf(tuple(words)))
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

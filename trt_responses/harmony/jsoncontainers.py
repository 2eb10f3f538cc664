"""Inside an object, inside an array: readings of a text, for `jsontext.Check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trt_responses.harmony.jsonscalars import ANY_STRING, QUOTE, InString, string_at
from trt_responses.harmony.jsontext import BLANK, BLANKS, OVER, Open, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.harmony.jsontext import Node, Seen, State
    from trt_responses.harmony.jsonvalue import Array, Object

_COMMA, _COLON = b",:"


Where = Literal["first", "next", "key"]


class InObject(Open):
    """Inside an object: behind its brace, behind a member, or behind a comma."""

    __slots__ = ("_blanks", "_node", "_seen", "_up", "_where", "key")

    def __init__(self, node: Object, seen: int, where: Where, up: State, blanks: int = 0) -> None:
        self._node, self._seen, self._where, self._up = node, seen, where, up
        self._blanks = blanks
        self.key: tuple[object, ...] = ("members", id(node), seen, where, blanks, id(up))

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        node, where = self._node, self._where
        if byte == QUOTE and where != "next":
            return node.names(self._seen, len(text), self._up)
        if byte == _COMMA and where == "next":
            return (InObject(node, self._seen, "key", self._up),)
        if byte == ord("}") and where != "key":
            return (self._up,) if node.required & ~self._seen == 0 else ()
        if byte in BLANK and self._blanks < BLANKS:
            return (InObject(node, self._seen, where, self._up, self._blanks + 1),)
        return ()


class InName(Open):
    """The name of a member that its object does not list."""

    __slots__ = ("_begin", "_node", "_seen", "_string", "_up")

    def __init__(self, node: Object, begin: int, seen: int, up: State) -> None:
        self._node, self._begin, self._seen, self._up = node, begin, seen, up
        self._string: Sequence[State] = (InString(ANY_STRING, begin, OVER),)

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        (string,) = self._string
        after = string.step(byte, text)
        if not after:
            return ()
        if after[0] is OVER:
            name = string_at(text, self._begin)
            rest = self._node.rest
            if name in self._node.places or rest is None:
                return ()
            return (BeforeColon(rest, InObject(self._node, self._seen, "next", self._up)),)
        if after[0] is string:
            return (self,)
        name_state = InName(self._node, self._begin, self._seen, self._up)
        name_state._string = after
        return (name_state,)

    @property
    def key(self) -> tuple[object, ...]:
        return ("name", id(self._node), self._begin, self._seen, id(self._up), self._string[0].key)


class BeforeColon(Open):
    __slots__ = ("_blanks", "_node", "_up")

    def __init__(self, node: Node, up: State, blanks: int = 0) -> None:
        self._node, self._up, self._blanks = node, up, blanks

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        if byte == _COLON:
            return (Value(self._node, self._up),)
        if byte in BLANK and self._blanks < BLANKS:
            return (BeforeColon(self._node, self._up, self._blanks + 1),)
        return ()

    @property
    def key(self) -> tuple[object, ...]:
        return ("colon", id(self._node), self._up.key, self._blanks)


class InArray(Open):
    """Inside an array: behind its bracket, or behind an element."""

    __slots__ = ("_blanks", "_count", "_node", "_up", "key")

    def __init__(self, node: Array, count: int, up: State, blanks: int = 0) -> None:
        self._node, self._count, self._up, self._blanks = node, count, up, blanks
        self.key: tuple[object, ...] = ("elements", id(node), count, blanks, id(up))

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        node, count = self._node, self._count
        if byte == ord("]"):
            return (self._up,) if count >= node.least else ()
        if byte in BLANK and self._blanks < BLANKS:
            return (InArray(node, count, self._up, self._blanks + 1),)
        element = node.element(count)
        if element is None:
            return ()
        after = InArray(node, count + 1, self._up)
        if count == 0:
            return element.open(byte, text, after)
        return (Value(element, after),) if byte == _COMMA else ()

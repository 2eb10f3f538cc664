"""What a JSON text must be, and whether it still is: checked byte by byte while it is written.

A `Node` says what a value may be. A `Check` follows one text with a set of states, for where a
schema offers alternatives the text may be several things at once. It knows no schema keyword and
no token, and nothing in it recurses, however deep a text is nested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

BLANKS = 32
"""White space in a row between two marks. Our own guides write none, other engines' may; a longer
run is a place where a model stays for ever."""
STATES = 512
"""Readings of one text at a time; more than the alternatives of any schema in bounds need."""

BLANK = frozenset(b" \t\r\n")

Seen = bytearray
"""The text up to the byte that is looked at, without it."""


class State(Protocol):
    """One reading of the text so far. `step` gives those that are left after one more byte."""

    def step(self, byte: int, text: Seen) -> Sequence[State]: ...

    def whole(self, text: Seen) -> bool:
        """The text may end here."""
        ...

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for readings that cannot be told apart any more."""
        ...


class Node(Protocol):
    """What a value may be."""

    def open(self, byte: int, text: Seen, up: State) -> Sequence[State]:
        """The readings of a value that begins with this byte; behind the value comes `up`."""
        ...


class Check:
    """One text, followed from its first byte to its last."""

    __slots__ = ("_states", "crowded", "text")

    def __init__(self, node: Node) -> None:
        self.text = bytearray()
        self.crowded = False
        """It was given up because there were too many ways to read it."""
        self._states: Sequence[State] = (Value(node, OVER),)

    def feed(self, piece: bytes) -> bool:
        """Whether the text goes on lawfully with all of it; if not, nothing of it is taken."""
        states, length = self._states, len(self.text)
        for byte in piece:
            if len(states) == 1:
                states = states[0].step(byte, self.text)
            else:
                found = [after for state in states for after in state.step(byte, self.text)]
                states = _distinct(found) if len(found) > 1 else found
                self.crowded = len(states) > STATES
                if self.crowded:
                    states = ()
            if not states:
                del self.text[length:]
                return False
            self.text.append(byte)
        self._states = states
        return True

    @property
    def whole(self) -> bool:
        """The text is a value that its node allows, be it that it could go on."""
        return any(state.whole(self.text) for state in self._states)


def _distinct(states: Sequence[State]) -> Sequence[State]:
    found = {state.key: state for state in states}
    return tuple(found.values())


# --- the readings -----------------------------------------------------------------------------


class Over(NamedTuple):
    """The value is whole, and nothing may follow."""

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        return ()

    def whole(self, text: Seen) -> bool:
        return True

    @property
    def key(self) -> tuple[object, ...]:
        return ("over",)


OVER = Over()


class Open:
    """A reading in the midst of things."""

    __slots__ = ()

    def whole(self, text: Seen) -> bool:
        return False


class Value(Open):
    """A value must come."""

    __slots__ = ("_blanks", "_node", "_up")

    def __init__(self, node: Node, up: State, blanks: int = 0) -> None:
        self._node, self._up, self._blanks = node, up, blanks

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        if byte in BLANK:
            if not text or self._blanks == BLANKS:
                return ()
            return (Value(self._node, self._up, self._blanks + 1),)
        return self._node.open(byte, text, self._up)

    @property
    def key(self) -> tuple[object, ...]:
        return ("value", id(self._node), self._up.key, self._blanks)


class Spelled(Open):
    """One of some texts, each with what comes behind it."""

    __slots__ = ("_options", "_position")

    def __init__(self, options: Sequence[tuple[bytes, State]], position: int) -> None:
        self._options, self._position = options, position

    def step(self, byte: int, text: Seen) -> Sequence[State]:
        place = self._position
        found: list[State] = []
        left = []
        for option in self._options:
            if option[0][place] == byte:
                if len(option[0]) == place + 1:
                    found.append(option[1])
                else:
                    left.append(option)
        if left:
            found.append(Spelled(left, place + 1))
        return found

    @property
    def key(self) -> tuple[object, ...]:
        options = tuple((text, up.key) for text, up in self._options)
        return ("literal", options, self._position)

"""Patterns that a string may be asked to follow: those that can be checked in bounded time.

A pattern goes from `^` to `$`: characters, classes, groups, alternatives and repeats, and nothing
that looks back or ahead. It is read into places, one for each character that it stands for, so that
no text makes the check run away, and every engine reads the pattern alike. Knows no schema.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_CHARACTERS = 256
MOST_STATES = 512
"""Characters that a pattern stands for at most, each repeat written out."""
MOST_NESTED = 16
"""Groups in groups."""
REMEMBERED = 256
"""Steps of a check that are remembered: most texts take the same few again and again."""

_CLASS = r"\[\^?(?:\\[dws.\-\]\[/^$+*?(){}|\\]|[ -Z_-~])+\]"
_ESCAPE = r"\\[dws.\-/^$+*?(){}|\[\]\\]"
_ATOM = re.compile(rf"{_CLASS}|{_ESCAPE}|\.|[ !\"#%-'\,\-/0-9:;<=>@A-Z_`a-z~&]")
_REPEAT = re.compile(r"\?|\*|\+|\{(\d{1,3})(?:(,)(\d{1,3})?)?\}")
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_]\w*>)?(?!\?)", re.ASCII)
_WORD = re.compile(rf"{_CLASS}|{_ESCAPE}|\.|{_GROUP.pattern}")
"""What engines may read otherwise than we do, and what must not be taken for it."""


_SETS = re.compile(r"&&|--|~~|\|\|")


class UnsafePattern(ValueError):
    """Says what of the pattern cannot be followed."""


def anchored(expression: str) -> str:
    """A pattern for the whole of a text, from an expression that may say so or not. Raises
    `UnsafePattern` for one that cannot be followed."""
    inner = expression.removeprefix("^")
    bare = inner.removesuffix("$")
    if (len(bare) - len(bare.rstrip("\\"))) % 2:
        bare = inner
    pattern = f"^(?:{bare})$" if "|" in bare else f"^{bare}$"
    if len(pattern) > MOST_CHARACTERS:
        raise UnsafePattern(f"it has more than {MOST_CHARACTERS} characters")
    Pattern(pattern)
    return pattern


class _Part(NamedTuple):
    """A stretch of a pattern: the places it may begin and end with, and whether it may lack."""

    first: int
    last: int
    may_lack: bool


_NOTHING = _Part(0, 0, True)


class _Reader:
    """Reads a pattern into places: what each takes, and which may come behind it."""

    def __init__(self, text: str) -> None:
        self.atoms: list[str] = []
        self.behind: list[int] = []
        self._text = text
        self._at = self._nested = 0

    def whole(self) -> _Part:
        """Alternatives stand in a group: `^a|b$` is what begins with a, or ends with b."""
        part = self._row()
        if self._at < len(self._text):
            raise self._odd()
        return part

    def _alternatives(self) -> _Part:
        part = self._row()
        while self._text.startswith("|", self._at):
            self._at += 1
            other = self._row()
            first, last = part.first | other.first, part.last | other.last
            part = _Part(first, last, part.may_lack or other.may_lack)
        return part

    def _row(self) -> _Part:
        """One at least: what is empty may stand for anything to somebody."""
        part = self._repeated()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            part = self._joined(part, self._repeated())
        return part

    def _repeated(self) -> _Part:
        """What is repeated is read again for each time that it may come."""
        begin = self._at
        parts = [self._one()]
        found = _REPEAT.match(self._text, self._at)
        end = found.end() if found else self._at
        least, most = _counts(found)
        if most is not None and least > most:
            raise UnsafePattern(f"{{{least},{most}}} is no range")
        for _ in range(1, max(least, 1) if most is None else most):
            self._at = begin
            parts.append(self._one())
        self._at = end
        if most is None:
            self._joined(parts[-1], parts[-1])
        return self._in_a_row(parts, least) if most != 0 else _NOTHING

    def _in_a_row(self, parts: list[_Part], least: int) -> _Part:
        """The first so many must come. From the last on: each leads to the next one alone."""
        row = _NOTHING
        for count in range(len(parts) - 1, -1, -1):
            row = self._joined(parts[count], row)
            if count >= least:
                row = row._replace(may_lack=True)
        return row

    def _one(self) -> _Part:
        if (group := _GROUP.match(self._text, self._at)) is not None:
            return self._grouped(group.end())
        atom = _ATOM.match(self._text, self._at)
        if atom is None:
            raise self._odd()
        self._at = atom.end()
        if len(self.atoms) >= MOST_STATES:
            raise UnsafePattern(f"it stands for more than {MOST_STATES} characters")
        place = 1 << len(self.atoms)
        self.atoms.append(_plain(atom[0]))
        self.behind.append(0)
        return _Part(place, place, False)

    def _grouped(self, begin: int) -> _Part:
        self._at, self._nested = begin, self._nested + 1
        if self._nested > MOST_NESTED:
            raise UnsafePattern(f"its groups are nested deeper than {MOST_NESTED}")
        part = self._alternatives()
        if not self._text.startswith(")", self._at):
            raise self._odd()
        self._at, self._nested = self._at + 1, self._nested - 1
        return part

    def _joined(self, part: _Part, other: _Part) -> _Part:
        for place in _places(part.last):
            self.behind[place] |= other.first
        first = part.first | (other.first if part.may_lack else 0)
        last = other.last | (part.last if other.may_lack else 0)
        return _Part(first, last, part.may_lack and other.may_lack)

    def _odd(self) -> UnsafePattern:
        return UnsafePattern(f"character {self._at + 2} begins nothing that it may hold")


class Pattern:
    """Follows a text in all ways at once, so that no way is tried twice: Python's own matcher may
    try 2^60. Bit n of a number stands for the way that has just taken place n; `begin` is before
    any."""

    begin = -1

    def __init__(self, pattern: str) -> None:
        if not (pattern.startswith("^") and pattern.endswith("$")) or len(pattern) < 3:
            raise UnsafePattern("it must go from ^ to $")
        reader = _Reader(pattern[1:-1])
        self._whole = reader.whole()
        self._behind = reader.behind
        self.states = len(reader.atoms)
        self.source = _WORD.sub(lambda found: _plain(found[0]), pattern)
        """The same, in words that no engine reads otherwise."""
        atoms: dict[str, int] = {}
        for place, atom in enumerate(reader.atoms):
            atoms[atom] = atoms.get(atom, 0) | 1 << place
        self._atoms = [(_matcher(atom), where) for atom, where in atoms.items()]
        self._taking: dict[str, int] = {}
        self._steps: dict[tuple[int, str], int] = {}

    def after(self, here: int, text: str) -> int:
        """Where the ways are after the text; 0 when there is none left."""
        steps = self._steps
        for character in text:
            # Atoms are plain ASCII: beyond it, all characters are alike to them.
            known = character if character < "\x80" else "\x80"
            there = steps.get((here, known))
            if there is None:
                there = self._next(here) & self._takes(known)
                if len(steps) >= REMEMBERED:
                    steps.clear()
                steps[here, known] = there
            if not there:
                return 0
            here = there
        return here

    def ends(self, here: int) -> bool:
        return self._whole.may_lack if here == self.begin else bool(here & self._whole.last)

    def follows(self, text: str) -> bool:
        """Whether the whole of a string follows the pattern."""
        return self.ends(self.after(self.begin, text))

    def _next(self, here: int) -> int:
        if here == self.begin:
            return self._whole.first
        there = 0
        for place in _places(here):
            there |= self._behind[place]
        return there

    def _takes(self, known: str) -> int:
        """The places that take the character."""
        if known not in self._taking:
            self._taking[known] = sum(where for takes, where in self._atoms if takes(known))
        return self._taking[known]


def _places(ways: int) -> Iterator[int]:
    while ways:
        lowest = ways & -ways
        yield lowest.bit_length() - 1
        ways ^= lowest


def _plain(word: str) -> str:
    """`.` and `\\s` by the characters that are meant, which languages see differently; and groups
    without names."""
    if word == ".":
        return r"[^\n\r]"
    if word == r"\s":
        return r"[ \t\n\r]"
    if word.startswith("["):
        return re.sub(r"\\(.)", lambda found: r" \t\n\r" if found[1] == "s" else found[0], word)
    return "(" if word.startswith("(?") and word != "(?:" else word


def _matcher(atom: str) -> Callable[[str], object]:
    if (found := _SETS.search(atom)) is not None:
        raise UnsafePattern(f"{found[0]!r} in a class is an operation to some")
    try:
        return re.compile(atom, re.ASCII).fullmatch
    except re.error as error:
        raise UnsafePattern(str(error)) from None


def _counts(repeat: re.Match[str] | None) -> tuple[int, int | None]:
    if repeat is None:
        return 1, 1
    if (plain := {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(repeat[0])) is not None:
        return plain
    low, comma, high = repeat[1], repeat[2], repeat[3]
    return int(low), int(high) if high else None if comma else int(low)

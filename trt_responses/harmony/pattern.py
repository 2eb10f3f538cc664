"""Patterns that a string may be asked to follow: those that can be checked in bounded time.

A pattern is flat: `^`, then characters and classes, each repeated or not, then `$`. So the check
cannot run away, and every engine reads the pattern alike. Knows no schema.
"""

from __future__ import annotations

import re
from datetime import date, time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST_STATES = 512
"""Characters that a pattern stands for at most, each repeat written out."""

_ATOM = re.compile(
    r"\[\^?(?:\\[dw.\-\]\[/^$+*?(){}|\\]|[ -Z_-~])+\]"  # a class
    r"|\\[dw.\-/^$+*?(){}|\[\]\\]"  # an escape
    r"|[ !\"#%-'\,\-/0-9:;<=>@A-Z_`a-z~&]"  # a character for itself
)
_REPEAT = re.compile(r"\?|\*|\+|\{(\d{1,3})(?:(,)(\d{1,3})?)?\}")

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATE_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.\d+)?(?:[Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_date(text: str) -> bool:
    """A day that there is: 31 February has the form and is none."""
    return _DATE.fullmatch(text) is not None and _parses(date.fromisoformat, text)


def is_date_time(text: str) -> bool:
    found = _DATE_TIME.fullmatch(text)
    return found is not None and is_date(found[1]) and _parses(time.fromisoformat, found[2])


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date": is_date,
    "date-time": is_date_time,
    "uuid": is_uuid,
}
"""Formats that are honoured."""


class UnsafePattern(ValueError):
    """Says what of the pattern cannot be followed."""


class _Place(NamedTuple):
    """One character of the pattern, its repeats written out."""

    takes: Callable[[str], object]
    may_lack: bool
    may_repeat: bool


def follower(pattern: str) -> Callable[[str], bool]:
    """Whether the whole of a string follows the pattern."""
    places = _places(pattern)
    return lambda text: _follows(places, text)


def _follows(places: Sequence[_Place], text: str) -> bool:
    """All ways at once, so that no way is tried twice: Python's own matcher may try 2^60."""
    here = _reached({0}, places)
    for character in text:
        taken = [n for n in here if n < len(places) and places[n].takes(character)]
        here = _reached({n if places[n].may_repeat else n + 1 for n in taken}, places)
    return len(places) in here


def _reached(here: set[int], places: Sequence[_Place]) -> set[int]:
    """And the places behind those that may lack."""
    waiting = list(here)
    while waiting:
        place = waiting.pop()
        if place < len(places) and places[place].may_lack and place + 1 not in here:
            here.add(place + 1)
            waiting.append(place + 1)
    return here


def _places(pattern: str) -> list[_Place]:
    if not (pattern.startswith("^") and pattern.endswith("$")) or len(pattern) < 3:
        raise UnsafePattern("it must go from ^ to $")
    body, places = pattern[1:-1], list[_Place]()
    at = 0
    while at < len(body):
        atom = _ATOM.match(body, at)
        if atom is None:
            raise UnsafePattern(f"character {at + 2} begins no plain character or class")
        repeat = _REPEAT.match(body, atom.end())
        at = repeat.end() if repeat else atom.end()
        places += _repeated(atom[0], *_counts(repeat))
        if len(places) > MOST_STATES:
            raise UnsafePattern(f"it stands for more than {MOST_STATES} characters")
    return places


def _repeated(atom: str, least: int, most: int | None) -> list[_Place]:
    try:
        takes = re.compile(atom, re.ASCII).fullmatch
    except re.error as error:
        raise UnsafePattern(str(error)) from None
    if most is None:
        return [_Place(takes, False, False)] * least + [_Place(takes, True, True)]
    if least > most:
        raise UnsafePattern(f"{{{least},{most}}} is no range")
    return [_Place(takes, False, False)] * least + [_Place(takes, True, False)] * (most - least)


def _counts(repeat: re.Match[str] | None) -> tuple[int, int | None]:
    if repeat is None:
        return 1, 1
    if (plain := {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(repeat[0])) is not None:
        return plain
    low, comma, high = repeat[1], repeat[2], repeat[3]
    return int(low), int(high) if high else None if comma else int(low)

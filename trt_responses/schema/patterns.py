"""Regular expressions of JSON Schema (ECMA-262), as llguidance writes them: for a whole text.

Every class is written out as the characters that ECMA means, so that no engine reads it otherwise.
What no automaton can follow (lookarounds, back references, word boundaries) raises `PatternFault`.
Knows no schema.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

MAX_CHARACTERS = 4_096
MAX_NESTED = 32
"""Groups in groups."""
MAX_REPEAT = 1_000
MAX_SIZE = 20_000
"""Characters that a pattern stands for when each repeat is written out."""
MAX_BRANCHES = 32
"""Ways in which the anchors of a pattern may lie."""

Ranges = tuple[tuple[int, int], ...]

LAST = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
DIGIT: Ranges = ((48, 57),)
WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
SPACE: Ranges = (
    *((9, 13), (32, 32), (160, 160), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))
CLASSES = {"d": DIGIT, "w": WORD, "s": SPACE}
CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
WRITABLE_CONTROLS = (9, 10, 13)

_COUNTS = re.compile(r"\{(\d+)(?:(,)(\d*))?\}", re.ASCII)
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}")
_RANGE = re.compile(r"-[^\]]", re.DOTALL)
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_$][\w$]*>)?(?!\?)")
_PROPERTY = re.compile(r"[pP]\{[A-Za-z_]+(?:=[A-Za-z_]+)?\}")


class PatternFault(ValueError):
    """Says what of the pattern cannot be followed, as the end of a sentence."""


class Look(NamedTuple):
    """A lookahead that stands at the very beginning of a pattern."""

    inner: Alternatives
    negative: bool


class Anchor(NamedTuple):
    at_end: bool


class Characters(NamedTuple):
    """One character out of some; `named` are Unicode properties, kept as they are spelled."""

    ranges: Ranges
    named: tuple[str, ...] = ()
    negated: bool = False


class Repeat(NamedTuple):
    inner: Part
    least: int
    most: int | None


class Alternatives(NamedTuple):
    rows: tuple[tuple[Part, ...], ...]


Part = Look | Anchor | Characters | Repeat | Alternatives


class Translated(NamedTuple):
    """A pattern, for the whole of a text. `looks` stand before it: (expression, negative)."""

    source: str
    looks: tuple[tuple[str, bool], ...] = ()


def translate(pattern: str, *, quoted: bool = False) -> Translated:
    """A pattern that may stand anywhere in a text, unless its anchors say otherwise. `quoted`: the
    text is written as a JSON string."""
    if len(pattern) > MAX_CHARACTERS:
        raise PatternFault(f"it has more than {MAX_CHARACTERS} characters")
    root = _Reader(pattern).whole()
    if _size(root) > MAX_SIZE:
        raise PatternFault(f"its repeats stand for more than {MAX_SIZE} characters")
    rows = _anchored_rows(root)
    looks: list[tuple[str, bool]] = []
    if any(isinstance(part, Look) for row in rows for part in row):
        if len(rows) > 1:
            raise PatternFault("it looks ahead in one of several alternatives")
        row = rows[0]
        while row and isinstance(row[0], Anchor | Look):
            if isinstance(row[0], Look):
                looks.append(
                    (_whole(_anchored_rows(row[0].inner), quoted, ahead=True), row[0].negative)
                )
            row = row[1:]
        rows = [(Anchor(False), *row)]
    return Translated(_whole(rows, quoted), tuple(looks))


# --- writing ----------------------------------------------------------------------------------

ANY = "(?s:.)*"


def _whole(rows: list[tuple[Part, ...]], quoted: bool, *, ahead: bool = False) -> str:
    """`ahead`: the text begins where the expression does, as behind a lookahead."""
    texts = []
    for row in rows:
        begins, ends = ahead, False
        while row and isinstance(row[0], Anchor) and not row[0].at_end:
            begins, row = True, row[1:]
        while row and isinstance(row[-1], Anchor) and row[-1].at_end:
            ends, row = True, row[:-1]
        inner = "".join(_written(part, quoted) for part in row)
        texts.append(("" if begins else ANY) + inner + ("" if ends else ANY))
    return texts[0] if len(texts) == 1 else f"(?:{'|'.join(texts)})"


def _anchored_rows(part: Alternatives) -> list[tuple[Part, ...]]:
    """The alternatives with their anchors at their edges: those in groups are drawn out."""
    found: list[tuple[Part, ...]] = []
    for row in part.rows:
        opened: list[tuple[Part, ...]] = [row]
        for edge in (0, -1):
            widened = []
            for candidate in opened:
                group = candidate[edge] if candidate else None
                if isinstance(group, Alternatives) and _has_anchor(group):
                    rest = candidate[1:] if edge == 0 else candidate[:-1]
                    inner = _anchored_rows(group)
                    widened += [(*i, *rest) if edge == 0 else (*rest, *i) for i in inner]
                else:
                    widened.append(candidate)
            opened = widened
        found += opened
        if len(found) > MAX_BRANCHES:
            raise PatternFault("its anchors stand in too many alternatives")
    return found


def _has_anchor(part: Part) -> bool:
    match part:
        case Anchor() | Look():
            return True
        case Repeat():
            return _has_anchor(part.inner)
        case Alternatives():
            return any(_has_anchor(inner) for row in part.rows for inner in row)
        case _:
            return False


def _written(part: Part, quoted: bool) -> str:
    match part:
        case Characters():
            return _class(part, quoted)
        case Repeat(inner, least, most):
            text = _written(inner, quoted)
            if most is None:
                return text + {0: "*", 1: "+"}.get(least, f"{{{least},}}")
            counts = f"{least}" if least == most else f"{least},{most}"
            return f"{text}{{{counts}}}"
        case Alternatives(rows):
            return f"(?:{'|'.join(''.join(_written(p, quoted) for p in row) for row in rows)})"
        case Anchor():
            raise PatternFault("'^' or '$' stands in its middle")
        case Look():
            raise PatternFault("it looks ahead, which no guide can")


def _class(part: Characters, quoted: bool) -> str:
    """Single characters beyond ASCII stand alone, as themselves: an engine may have to spell them
    in a way of its own."""
    if part.named:
        inner = "".join(_range(*pair) for pair in part.ranges) + "".join(part.named)
        return f"[{'^' if part.negated else ''}{inner}]"
    ranges = _complement(part.ranges) if part.negated else part.ranges
    ranges = _merged(ranges)
    ranges = tuple(_without_surrogates(_writable(ranges) if quoted else ranges))
    if not ranges:
        raise PatternFault("one of its classes holds no character")
    alone = [low for low, high in ranges if low == high and low > 127]
    if len(alone) > MAX_BRANCHES:
        alone = []
    rest = "".join(_range(*pair) for pair in ranges if pair[0] not in alone)
    texts = [*([f"[{rest}]"] if rest else []), *map(chr, alone)]
    return texts[0] if texts == [f"[{rest}]"] else f"(?:{'|'.join(texts)})"


def _writable(ranges: Ranges) -> Ranges:
    """For a class of all controls without the quote or the backslash, llguidance lets their escapes
    be written in a string: such a class keeps the controls that people write, and no other."""
    if _holds(ranges, 34) and _holds(ranges, 92):
        return ranges
    kept = [(n, n) for n in WRITABLE_CONTROLS if _holds(ranges, n)]
    kept += [(max(low, 32), high) for low, high in ranges if high >= 32]
    return _merged(tuple(kept)) or ranges


def _holds(ranges: Ranges, code: int) -> bool:
    return any(low <= code <= high for low, high in ranges)


def _merged(ranges: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def _complement(ranges: Ranges) -> Ranges:
    found, begin = [], 0
    for low, high in _merged(ranges):
        if begin < low:
            found.append((begin, low - 1))
        begin = high + 1
    return (*found, (begin, LAST)) if begin <= LAST else tuple(found)


def _without_surrogates(ranges: Ranges) -> list[tuple[int, int]]:
    low, high = SURROGATES
    cut = [(a, min(b, low - 1)) for a, b in ranges if a < low]
    cut += [(max(a, high + 1), b) for a, b in ranges if b > high]
    return sorted(cut)


def _range(low: int, high: int) -> str:
    return _spelled(low) if low == high else f"{_spelled(low)}-{_spelled(high)}"


def _spelled(code: int) -> str:
    text = chr(code)
    return text if text.isalnum() and text.isascii() else f"\\x{{{code:x}}}"


def _size(part: Part) -> int:
    match part:
        case Repeat(inner, least, most):
            return max(1, least if most is None else most) * _size(inner)
        case Alternatives(rows):
            return sum(_size(inner) for row in rows for inner in row)
        case Look(inner):
            return _size(inner)
        case _:
            return 1


# --- reading ----------------------------------------------------------------------------------


class _Reader:
    """Reads a pattern, once, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._nested = 0

    def whole(self) -> Alternatives:
        found = self._alternatives()
        if self._at < len(self._text):
            self._odd("is not closed or opened")
        return found

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _starts(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _alternatives(self) -> Alternatives:
        rows = [self._row()]
        while self._starts("|"):
            rows.append(self._row())
        return Alternatives(tuple(rows))

    def _row(self) -> tuple[Part, ...]:
        parts: list[Part] = []
        while (character := self._peek()) and character not in "|)":
            parts.append(self._repeated())
        return tuple(parts)

    def _repeated(self) -> Part:
        part = self._one()
        bounds = self._bounds()
        if bounds is None:
            return part
        if isinstance(part, Anchor | Look):
            self._odd("is repeated")
        if _has_anchor(part):
            raise PatternFault("it repeats an anchor")
        least, most = bounds
        if max(least, most or 0) > MAX_REPEAT or (most is not None and least > most):
            raise PatternFault(f"{{{least},{'' if most is None else most}}} is no range to follow")
        self._starts("?")  # lazy: the same texts
        if (self._peek() and self._peek() in "*+?") or _COUNTS.match(self._text, self._at):
            self._odd("repeats a repeat")
        return Repeat(part, least, most)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("?", (0, 1)), ("*", (0, None)), ("+", (1, None))):
            if self._starts(sign):
                return bounds
        if (found := _COUNTS.match(self._text, self._at)) is None:
            return None
        self._at = found.end()
        least = int(found[1][:9])
        most = int(found[3][:9]) if found[3] else None if found[2] else least
        return least, most

    def _one(self) -> Part:
        character = self._peek()
        if character == "(":
            return self._group()
        if character in "*+?":
            self._odd("repeats nothing")
        self._at += 1
        match character:
            case "^" | "$":
                return Anchor(character == "$")
            case ".":
                return Characters(LINE_ENDS, negated=True)
            case "[":
                return self._set()
            case "\\":
                return self._escape(in_class=False)
            case _:
                return Characters(((ord(character), ord(character)),))

    def _group(self) -> Part:
        begin = self._at
        look = next((sign for sign in ("(?=", "(?!") if self._starts(sign)), None)
        if look is None:
            if (found := _GROUP.match(self._text, self._at)) is None:
                behind = self._text.startswith(("(?<=", "(?<!"), self._at)
                self._odd("looks behind, which no guide can" if behind else "is no group known")
            self._at = found.end()
        self._nested += 1
        if self._nested > MAX_NESTED:
            raise PatternFault(f"its groups are nested deeper than {MAX_NESTED}")
        inner = self._alternatives()
        if not self._starts(")"):
            self._at = begin
            self._odd("is not closed")
        self._nested -= 1
        return inner if look is None else Look(inner, look == "(?!")

    def _escape(self, *, in_class: bool) -> Characters:
        at = self._at
        character = self._peek()
        self._at += 1
        if character and character in "dwsDWS":
            return Characters(CLASSES[character.lower()], negated=character.isupper())
        if character in CONTROLS and not self._peek().isdigit():
            code = CONTROLS[character]
        elif (found := _HEX.match(self._text, at)) is not None:
            self._at = found.end()
            code = int(found[1] or found[2] or found[3], 16)
        elif (found := _PROPERTY.match(self._text, at)) is not None:
            self._at = found.end()
            return Characters((), ("\\" + found[0],))
        elif character == "c" and self._peek().isalpha() and self._peek().isascii():
            code = ord(self._peek()) % 32
            self._at += 1
        elif character == "b" and in_class:
            code = 8
        elif not character or (character.isalnum() and character.isascii()):
            self._at = at - 1
            what = {"b": "is a word boundary", "B": "is a word boundary"}
            back = "refers to a group" if character.isdigit() or character == "k" else "is unknown"
            self._odd(f"{what.get(character, back)}, which no guide can follow")
        else:
            code = ord(character)
        if code > LAST:
            self._odd("is no character")
        return Characters(((code, code),))

    def _set(self) -> Characters:
        negated = self._starts("^")
        ranges: list[tuple[int, int]] = []
        named: list[str] = []
        while not self._starts("]"):
            first = self._member()
            single = len(first.ranges) == 1 and first.ranges[0][0] == first.ranges[0][1]
            if single and not first.negated and _RANGE.match(self._text, self._at):
                self._at += 1
                last = self._member()
                if len(last.ranges) != 1 or last.negated or last.ranges[0] < first.ranges[0]:
                    self._odd("ends no range")
                first = Characters(((first.ranges[0][0], last.ranges[0][1]),))
            ranges += _complement(first.ranges) if first.negated else first.ranges
            named += first.named
        return Characters(_merged(tuple(ranges)), tuple(named), negated)

    def _member(self) -> Characters:
        character = self._peek()
        if not character:
            self._odd("is a class that is not closed")
        self._at += 1
        if character == "\\":
            return self._escape(in_class=True)
        return Characters(((ord(character), ord(character)),))

    def _odd(self, what: str) -> NoReturn:
        raise PatternFault(f"{self._text[self._at : self._at + 12]!r} {what}")

"""Translates regular expressions of JSON Schema (ECMA-262) for llguidance.

Each class is expanded to the characters that ECMA defines, so that all engines read it alike. What
no automaton can follow (lookarounds, back references, word boundaries) raises `PatternFault`. No
schema here.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

MAX_CHARACTERS = 4_096
MAX_NESTED = 32
"""Maximum nesting of groups."""
MAX_REPEAT = 1_000
MAX_SIZE = 4_096
"""Maximum size of a pattern with each repeat expanded, in characters."""
MAX_NESTED_SIZE = 1_000
"""Maximum size of a repeat of repeats. With 2,500 a byte may take 5 ms, and 20 ms for three such
patterns at once. The largest of 2,600 real patterns has 398."""
MAX_ALONE = 32
"""Maximum non-ASCII characters that are moved out of a class."""

CLASSES = {
    "d": "0-9",
    "w": "0-9A-Z_a-z",
    "s": r"\x{9}-\x{d}\x{20}\x{a0}\x{1680}\x{2000}-\x{200a}"
    r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}",
}
NO_LINE_END = r"[^\x{a}\x{d}\x{2028}\x{2029}]"
CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
WRITABLE = r"[\x{9}\x{a}\x{d}\x{20}-\x{10ffff}]"

UNREAD = {
    "(?<=": "looks behind",
    "(?<!": "looks behind",
    "(": "is not a supported group",
    "[": "is an unclosed class",
    "\\": "ends in the middle",
}
"""Reasons why a token cannot be read, by its beginning."""

_ESCAPE = (
    r"\\(?:x[0-9A-Fa-f]{2}|u[dD][89ABab][0-9A-Fa-f]{2}\\u[dD][C-Fc-f][0-9A-Fa-f]{2}"
    r"|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}|c[A-Za-z]"
    r"|[pP]\{[A-Za-z_]+(?:=[A-Za-z_]+)?\}|0\d+|.)"
)
_TOKEN = re.compile(
    r"(?P<open>\((?:\?:|\?P?<[A-Za-z_$][\w$]*>|(?P<look>\?[=!]))?(?!\?))|(?P<close>\))|(?P<or>\|)"
    r"|(?P<anchor>[\^$])|(?P<repeat>(?:[*?]|(?P<once>\+)|\{(?P<least>\d+)(?P<to>,(?P<most>\d*))?\})"
    r"(?P<lazy>\??))|(?P<set>\[(?P<negated>\^?)(?P<members>(?:\\.|[^\]\\])*)\])"
    rf"|(?P<atom>{_ESCAPE}|[^\\[(])",
    re.ASCII | re.DOTALL,
)
_MEMBER = re.compile(rf"({_ESCAPE}|[^\\])(?:-({_ESCAPE}|[^\\]))?", re.ASCII | re.DOTALL)


class PatternFault(ValueError):
    """The unsupported part of a pattern, as the end of a sentence."""


class Token(NamedTuple):
    """A token of a pattern. `kind` is a group name of `_TOKEN`; `(?=` or `(?!` opens a
    lookahead."""

    kind: str | None
    text: str


class Translated(NamedTuple):
    """A translated, unanchored pattern. `looks`: the lookaheads at its start, as (pattern,
    negative)."""

    source: str
    looks: tuple[tuple[str, bool], ...] = ()


LOOKS = (Token("open", "(?="), Token("open", "(?!"))
BEGIN = Token("anchor", "^")
OPEN = Token("open", "(?:")
CLOSE = Token("close", ")")


def translate(pattern: str) -> Translated:
    """A JSON Schema pattern, translated. Raises a `PatternFault` if it is unsupported."""
    if len(pattern) > MAX_CHARACTERS:
        raise PatternFault(f"it is too long: {len(pattern)} characters, limit {MAX_CHARACTERS}")
    tokens = _tokens(pattern)
    looks = []
    while tokens[:1] == [BEGIN] and len(tokens) > 1 and tokens[1] in LOOKS:
        depths = _depths(tokens[1:])
        end = depths.index(0) + 1
        looks.append((_written([BEGIN, OPEN, *tokens[2:end], CLOSE]), tokens[1].text.endswith("!")))
        del tokens[1 : end + 1]
    parted = (Token("or", "|"), 0) in zip(tokens, _depths(tokens), strict=True)
    if parted and (looks or any(token in LOOKS for token in tokens)):
        raise PatternFault("it has a lookahead in one of several alternatives")
    return Translated(_written(tokens), tuple(looks))


def _depths(tokens: list[Token]) -> list[int]:
    """The number of open groups after each token."""
    depth = 0
    return [depth := depth + (t.kind == "open") - (t.kind == "close") for t in tokens]


def _written(tokens: list[Token]) -> str:
    if any(token in LOOKS for token in tokens):
        raise PatternFault("it looks ahead, which no guide can")
    tokens = _anchored_once(tokens, "^", "open", "close")
    tokens = _anchored_once(tokens[::-1], "$", "close", "open")[::-1]
    return "".join(token.text for token in tokens)


def _anchored_once(tokens: list[Token], anchor: str, opens: str, closes: str) -> list[Token]:
    """The tokens without repeated anchors, which older versions of llguidance do not read. Raises
    for an anchor after anything else. For `$`, tokens come last to first."""
    single = []
    outside = ["free"]
    state = "free"
    for token in tokens:
        if token.kind == opens:
            outside.append(state)
        elif token.kind == "or":
            state = outside[-1]
        elif token == ("anchor", anchor):
            if state == "inside":
                raise PatternFault("'^' or '$' occurs in its middle")
            if state == "anchored":
                continue
            state = "anchored"
        elif token.kind != "repeat":
            state = "inside"
            if token.kind == closes:
                outside.pop()
        single.append(token)
    return single


def _tokens(pattern: str) -> list[Token]:
    tokens: list[Token] = []
    sizes = [0]  # of each open group
    repeats = [False]  # whether each contains a repeat
    last = at = 0  # `last`: the size of the part that a repeat would repeat
    nested = False  # whether that part contains a repeat
    while at < len(pattern):
        rest = pattern[at : at + 12]
        token = _TOKEN.match(pattern, at)
        if token is None:
            _odd(rest, next(what for begin, what in UNREAD.items() if rest.startswith(begin)))
        previous = tokens[-1].kind if tokens else "or"
        match token.lastgroup:
            case "open":
                sizes.append(0)
                repeats.append(False)
            case "close":
                last, nested = sizes.pop(), repeats.pop()
                if not sizes:
                    _odd(rest, "is not closed or opened")
                sizes[-1] += last
                repeats[-1] |= nested
            case "repeat":
                if previous in ("or", "open", "anchor", "repeat"):
                    _odd(rest, "repeats a repeat" if previous == "repeat" else "repeats nothing")
                most = _most(token)
                if nested and most > 1 and last * most > MAX_NESTED_SIZE:
                    _too_large("repeats of repeats", MAX_NESTED_SIZE)
                sizes[-1] += last * (most - 1)
                repeats[-1] = True
            case "atom" | "set":
                last, nested = 1, False
                sizes[-1] += 1
        if len(sizes) > MAX_NESTED + 1:
            raise PatternFault(f"its groups are nested too deep: limit {MAX_NESTED}")
        tokens.append(Token(token.lastgroup, _text(token)))
        at = token.end()
    if len(sizes) > 1:
        raise PatternFault("one of its groups is not closed")
    if sizes[0] > MAX_SIZE:
        _too_large("repeats", MAX_SIZE)
    return tokens


def _odd(text: str, what: str) -> NoReturn:
    raise PatternFault(f"{text!r} {what}, which no guide can follow")


def _too_large(what: str, most: int) -> NoReturn:
    raise PatternFault(f"its {what} expand to more than {most:,} characters")


def _most(repeat: re.Match[str]) -> int:
    """The maximum of repeats; the minimum if there is no maximum."""
    least = int((repeat["least"] or ("1" if repeat["once"] else "0"))[:9])
    most = int(repeat["most"][:9]) if repeat["most"] else least
    if max(least, most) > MAX_REPEAT or most < least:
        _odd(repeat[0], "is not a range")
    return max(1, most)


def _text(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "open":
            return f"({token['look'] or '?:'}"
        case "repeat":
            return token[0].removesuffix(token["lazy"])  # lazy: the same texts
        case "set":
            return _set(token["members"], negated=bool(token["negated"]))
        case "atom" if token[0] == ".":
            return NO_LINE_END
        case "atom":
            code = _character(token[0])
            return code if isinstance(code, str) else _spelled(code)
    return token[0]


def _spelled(code: int) -> str:
    """A character; non-ASCII ones stay literal, since some engines spell them differently."""
    if not _without_surrogates([(code, code)]):
        _odd(f"\\u{code:x}", "is half a surrogate pair")
    return f"(?:{chr(code)})" if code > 127 else _point(code)


def _point(code: int) -> str:
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code:x}}}"


def _character(text: str) -> int | str:
    """The code point of a character or an escape, or the class that it denotes."""
    if text[0] != "\\" or not text[1].isalnum() or not text.isascii():
        return ord(text[-1])
    kind, rest = text[1], text[2:].strip("{}")
    if kind in "xu" and rest:
        high, _, low = rest.partition(r"\u")  # of a surrogate pair
        code = int(high, 16)
        if low:
            code = (code - 0xD7C0 << 10) + (int(low, 16) & 0x3FF)
        if code > 0x10FFFF:
            _odd(text, "is beyond Unicode")
        return code
    if kind == "c" and rest:
        return ord(rest) % 32
    if kind in "pP" and rest:
        return text
    if kind.lower() in CLASSES:
        return f"[{'^' if kind.isupper() else ''}{CLASSES[kind.lower()]}]"
    if kind in CONTROLS and not rest:
        return CONTROLS[kind]
    if kind in "bB":
        _odd(text, "is a word boundary")
    _odd(text, "refers to a group" if kind.isdigit() or kind == "k" else "is unknown")


def _set(members: str, *, negated: bool) -> str:
    ranges: list[tuple[int, int]] = []
    classes: list[str] = []
    for member in _MEMBER.finditer(members):
        ends = [8 if text == r"\b" else _character(text) for text in member.groups() if text]
        points = [end for end in ends if isinstance(end, int)]
        classes += [end for end in ends if isinstance(end, str)]
        if len(points) < len(ends):
            points += [ord("-")] * (len(ends) - 1)
            ranges += [(point, point) for point in points]
        elif points[-1] < points[0]:
            _odd(member[0], "ends no range")
        else:
            ranges.append((points[0], points[-1]))
    return _class(_without_surrogates(ranges), classes, negated)


def _class(ranges: list[tuple[int, int]], classes: list[str], negated: bool) -> str:
    """A character class. Single non-ASCII characters become alternatives. For a class of control
    characters without the quote or the backslash, llguidance would allow their escapes in a string:
    such a class keeps only tab and line ends."""
    if not ranges and not classes:
        if negated:
            return r"[\x{0}-\x{10ffff}]"
        raise PatternFault("one of its classes is empty")
    alone = [chr(low) for low, high in ranges if low == high and low > 127 and not negated]
    if len(alone) > MAX_ALONE:
        alone = []
    together = [pair for pair in ranges if pair[0] < pair[1] or chr(pair[0]) not in alone]
    inner = "".join([_point(a) if a == b else f"{_point(a)}-{_point(b)}" for a, b in together])
    inner += "".join(classes)
    text = f"[{'^' if negated else ''}{inner}]"
    if negated or classes or any(low < 32 for low, _ in together):
        outside = any(each.startswith("[^") for each in classes)
        holds = [outside or any(low <= n <= high for low, high in ranges) for n in (34, 92)]
        if negated in holds:
            text = f"[{text}&&{WRITABLE}]"
    return text if not alone else f"(?:{'|'.join([text] * bool(inner) + alone)})"


def _without_surrogates(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges without surrogates at their ends."""
    trimmed = [
        (0xE000 if 0xD800 <= low <= 0xDFFF else low, 0xD7FF if 0xD800 <= high <= 0xDFFF else high)
        for low, high in ranges
    ]
    return [(low, high) for low, high in trimmed if low <= high]

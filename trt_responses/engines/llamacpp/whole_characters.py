"""A guide whose texts count characters as their readers do, whatever ids they come in.

A model file spells the bytes of a character that its ids split by stand-ins (`tokens.stand_ins`),
and a guide would take each of those for a character, in any order. Where the length or the form of
a text is asked for, stand-ins are let stand only as whole characters, each of which counts once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from trt_responses.engine import Guide
from trt_responses.tokens.stand_ins import stand_in


def _range(low: int, high: int) -> str:
    """Of the bytes' stand-ins: those of even bytes stand in a row, and those of odd ones."""
    ends = [(first, max(first, high - (high - first) % 2)) for first in (low, low + 1)]
    return "".join(
        rf"\x{{{ord(stand_in(a)):x}}}-\x{{{ord(stand_in(b)):x}}}" for a, b in ends if a <= high
    )


def _one(*bounds: tuple[int, int]) -> str:
    return f"[{''.join(_range(low, high) for low, high in bounds)}]"


ALL = _range(0x80, 0xFF)
_NEXT = _one((0x80, 0xBF))
SPLIT = "|".join(
    "".join(parts)
    for parts in (
        (_one((0xC2, 0xDF)), _NEXT),
        (_one((0xE0, 0xE0)), _one((0xA0, 0xBF)), _NEXT),
        (_one((0xE1, 0xEC), (0xEE, 0xEF)), _NEXT, _NEXT),
        (_one((0xED, 0xED)), _one((0x80, 0x9F)), _NEXT),
        (_one((0xF0, 0xF0)), _one((0x90, 0xBF)), _NEXT, _NEXT),
        (_one((0xF1, 0xF3)), _NEXT, _NEXT, _NEXT),
        (_one((0xF4, 0xF4)), _one((0x80, 0x8F)), _NEXT, _NEXT),
    )
)
"""Any character in stand-ins: UTF-8, byte by byte."""
ANY = f"(?:[^{ALL}]|{SPLIT})"
ASKS = ("pattern", "patternProperties", "minLength", "maxLength")
_PIECE = re.compile(r"\\(?:[xpP]\{[^}]*\}|.)|.", re.DOTALL)
_ASCII = re.compile(r"\[(?:\\x\{[0-7]?[0-9a-f]\}|[^\\^\[\]\x80-\U0010ffff])*\]")
_NEGATED = re.compile(r"\[\^[^\[\]]*(?:\[[^\[\]^][^\[\]]*\][^\[\]]*)*\]")
_PLAIN = re.compile(r"\[[^\[\]^][^\[\]]*\]")
_TWICE = re.compile(r"\[\^[^\]]*\[\^")
_BLANKS = re.compile(r"\\x\{(?:a0|1680|20[02][0-9a-f]|205f|3000|feff)\}")
_BEYOND_ASCII = re.compile(r"\\x\{(?:[89a-f][0-9a-f]|[0-9a-f]{3,})\}|\\[pP]")


def whole_characters(guide: Guide) -> Guide:
    """The same guide for a model file with stand-ins. It allows no more texts than it did; split
    characters have no place in a class that names others beyond ASCII."""
    if guide.kind != "json_schema" or not any(f'"{word}"' in guide.source for word in ASKS):
        return guide
    try:
        schema = orjson.loads(guide.source)
    except orjson.JSONDecodeError:
        return guide
    return Guide(guide.kind, orjson.dumps(_walked(schema)).decode())


def _walked(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    made = {keyword: _part(keyword, value) for keyword, value in schema.items()}
    least, most = made.pop("minLength", 0), made.pop("maxLength", "")
    if least or most != "":
        length = {"pattern": f"^{ANY}{{{least},{most}}}$"}
        if "pattern" in made:
            made["allOf"] = [*made.get("allOf", ()), length]
        else:
            made |= length
    return made


def _part(keyword: str, value: Any) -> Any:
    match keyword, value:
        case "pattern", str():
            return _spelled(value)
        case (("properties" | "$defs"), dict()):
            return _each(value, str)
        case "patternProperties", dict():
            return _each(value, _spelled)
        case (("anyOf" | "allOf" | "prefixItems"), list()):
            return [_walked(part) for part in value]
        case (("items" | "additionalProperties"), _):
            return _walked(value)
    return value


def _each(parts: dict[str, Any], name: Callable[[str], str]) -> dict[str, Any]:
    return {name(key): _walked(part) for key, part in parts.items()}


def _spelled(pattern: str) -> str:
    """A pattern of `schema.patterns`, with each class as its readers mean it."""
    made = held = ""
    depth = 0
    for piece in _PIECE.findall(pattern):
        if depth or piece == "[":
            held += piece
            depth += (piece == "[") - (piece == "]")
            if not depth:
                made += _class(held)
                held = ""
        else:
            made += _class(piece) if piece[:2] in (r"\p", r"\P") else piece
    return made


def _class(text: str) -> str:
    if _ASCII.fullmatch(text):
        return text
    without = f"[{text}&&[^{ALL}]]"
    # All but some, by itself or beside other characters.
    negated = None if _TWICE.search(_PLAIN.sub("", text)) else _NEGATED.search(text)
    if negated is None or _BEYOND_ASCII.search(_BLANKS.sub("", negated[0])):
        return without
    return f"(?:{without}|{SPLIT})"

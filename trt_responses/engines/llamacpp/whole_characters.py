"""Rewrites guides so that length and pattern count whole characters, whatever ids split them.

A model file spells the bytes of a split character with stand-ins (`tokens.stand_ins`), and a guide
would accept each of them as a character, in any order. Where a schema restricts the length or form
of a text, stand-ins are allowed only as whole characters, each of which counts once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from trt_responses.engine import Guide
from trt_responses.engines.stand_ins import stand_in


def _range(low: int, high: int) -> str:
    """The character ranges of bytes' stand-ins: even and odd bytes have separate ranges."""
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
"""Any character as stand-ins: UTF-8, byte by byte."""
ANY = f"(?:[^{ALL}]|{SPLIT})"
RESTRICTIONS = ("pattern", "patternProperties", "minLength", "maxLength")
_PIECE = re.compile(r"\\(?:[xpP]\{[^}]*\}|.)|.", re.DOTALL)
_ASCII = re.compile(r"\[(?:\\x\{[0-7]?[0-9a-f]\}|[^\\^\[\]\x80-\U0010ffff])*\]")
_NEGATED = re.compile(r"\[\^[^\[\]]*(?:\[[^\[\]^][^\[\]]*\][^\[\]]*)*\]")
_PLAIN = re.compile(r"\[[^\[\]^][^\[\]]*\]")
_TWICE = re.compile(r"\[\^[^\]]*\[\^")
_BLANKS = re.compile(r"\\x\{(?:a0|1680|20[02][0-9a-f]|205f|3000|feff)\}")
_BEYOND_ASCII = re.compile(r"\\x\{(?:[89a-f][0-9a-f]|[0-9a-f]{3,})\}|\\[pP]")


def whole_characters(guide: Guide) -> Guide:
    """The guide for a model file with stand-ins. It allows no more texts than before; a class that
    names other non-ASCII characters does not match split ones."""
    if guide.kind != "json_schema" or not any(f'"{word}"' in guide.source for word in RESTRICTIONS):
        return guide
    try:
        schema = orjson.loads(guide.source)
    except orjson.JSONDecodeError:
        return guide
    return Guide(guide.kind, orjson.dumps(_walked(schema)).decode())


def _walked(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    walked = {keyword: _part(keyword, value) for keyword, value in schema.items()}
    least, most = walked.pop("minLength", 0), walked.pop("maxLength", "")
    if least or most != "":
        length = {"pattern": f"^{ANY}{{{least},{most}}}$"}
        if "pattern" in walked:
            walked["allOf"] = [*walked.get("allOf", ()), length]
        else:
            walked |= length
    return walked


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
    """A pattern of `schema.patterns`, with classes that match split characters too."""
    spelled = group = ""
    depth = 0
    for piece in _PIECE.findall(pattern):
        if depth or piece == "[":
            group += piece
            depth += (piece == "[") - (piece == "]")
            if not depth:
                spelled += _class(group)
                group = ""
        else:
            spelled += _class(piece) if piece[:2] in (r"\p", r"\P") else piece
    return spelled


def _class(text: str) -> str:
    if _ASCII.fullmatch(text):
        return text
    without = f"[{text}&&[^{ALL}]]"
    # A negated class, alone or with other characters.
    negated = None if _TWICE.search(_PLAIN.sub("", text)) else _NEGATED.search(text)
    if negated is None or _BEYOND_ASCII.search(_BLANKS.sub("", negated[0])):
        return without
    return f"(?:{without}|{SPLIT})"

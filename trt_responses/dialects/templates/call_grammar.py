"""Builds Lark grammars for call arguments that are keys and values in text, not JSON.

A member that the reader reads as text is text here too, restricted by its schema's string keywords;
every other member is JSON. Members come in the schema's order. A schema that a grammar cannot
express raises `Unguided`. Works on schemas as `schema/normalise.py` writes them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trt_responses.dialects.templates.pieces import is_mark, pieces
from trt_responses.dialects.templates.read.arguments import TEXT, TYPES, types_of
from trt_responses.language.steering import Unguided

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from trt_responses.dialects.templates.families import Calls

    Json = dict[str, Any]

STAND_INS = 0x10FF00
"""First of the characters that stand in for one-token marks; no value may contain them."""
ANY = rf"[\x{{9}}\x{{a}}\x{{d}}\x{{20}}-\x{{{STAND_INS - 1:x}}}]"
"""One character of a value."""
TEXT_NAME = "TEXT"
"""The terminal for a text that spells no mark."""
STRICTLY = {"x-guidance": {"whitespace_flexible": False}}
"""Forbids free white space, in which a model can loop for ever."""
WITHOUT_EFFECT = frozenset({"type", "title", "description", "$defs"})
DEPTH = 8
"""Maximum depth of followed references."""
OF_OBJECT = frozenset({"properties", "required", "additionalProperties", *WITHOUT_EFFECT})


def arguments_grammar(
    calls: Calls,
    guide: Json,
    schema: Mapping[str, object],
    tokens: Collection[str],
    mark: Callable[[str], str],
) -> str:
    """The grammar of one tool's arguments. `guide`: the normalised schema; `schema`: the client's;
    `tokens`: the marks that are one token; `mark` returns one as a symbol of the grammar."""
    if extra := guide.keys() - OF_OBJECT:
        raise Unguided(f"its members depend on {', '.join(sorted(extra))}")
    members = guide.get("properties", {})
    if not members and guide.get("additionalProperties") is not False:
        raise Unguided("it names no members and allows any")
    if _refers_to_whole(guide):
        raise Unguided("it refers to itself")
    return "\n".join(_Grammar(calls, guide, schema, tokens, mark).lines())


def _refers_to_whole(value: object) -> bool:
    match value:
        case dict():
            return value.get("$ref") == "#" or any(map(_refers_to_whole, value.values()))
        case list():
            return any(map(_refers_to_whole, value))
    return False


class _Grammar:
    """The grammar of one tool's arguments."""

    def __init__(
        self,
        calls: Calls,
        guide: Json,
        schema: Mapping[str, object],
        tokens: Collection[str],
        mark: Callable[[str], str],
    ) -> None:
        assert calls.tags is not None
        self._tags, self._end = calls.tags, calls.after_arguments
        self._guide, self._schema, self._mark = guide, schema, mark
        self._tokens = tokens
        properties = schema.get("properties")
        self._known: Mapping[str, object] = properties if isinstance(properties, dict) else {}
        tags = self._tags.open, self._tags.key_end, self._tags.value_end.replace("{key}", "")
        own = (one for text in tags for one in pieces(text) if is_mark(one) and one[-1] in ">]")
        self._marks = tuple(dict.fromkeys((*own, calls.open, calls.close)))

    def lines(self) -> Iterator[str]:
        needed = self._guide.get("required", ())
        members = self._guide.get("properties", {})
        row = [f"m{n}" + ("" if key in needed else "?") for n, key in enumerate(members)]
        end = self._symbols(self._end or ("" if members else "\n"))
        yield " ".join(filter(None, ("start:", *row, end)))
        marks = "|".join(map(_escaped, self._marks))
        yield f"{TEXT_NAME}: /{ANY}*/ & ~/{ANY}*(?:{marks}){ANY}*/"
        for number, (key, part) in enumerate(members.items()):
            yield from self._member(f"{number}", key, part)

    def _member(self, number: str, key: str, part: object) -> Iterator[str]:
        if not key or key != key.strip() or any(sign in key for sign in "<>\n"):
            raise Unguided(f"the name {key!r} cannot be written as a key")
        types = types_of(self._known[key], self._schema) if key in self._known else TEXT
        before, behind = self._around(key, is_text="string" in types)
        yield f"m{number}: {before} v{number}"
        if "string" not in types:
            yield f"v{number}: j{number} {behind}"
            yield f"j{number}: %json {self._as_json(part)}"
            return
        texts = list(self._texts(part, key, DEPTH))
        if not texts:
            raise Unguided(f"'{key}' is read as text, and its schema allows no text")
        if "null" in types and types != TYPES:
            texts.append("/null/")
        yield from self._text_value(number, texts, behind)

    def _as_json(self, part: object) -> str:
        whole = {**(part if isinstance(part, dict) else {}), **STRICTLY}
        if "$defs" in self._guide:
            whole["$defs"] = self._guide["$defs"]
        return json.dumps(whole, ensure_ascii=False)

    @staticmethod
    def _text_value(number: str, texts: Sequence[str], behind: str) -> Iterator[str]:
        """Joins a text and a mark that is text into one terminal: a text alone would match half of
        the mark."""
        names = [f"T{number}_{place}" for place in range(len(texts))]
        for name, text in zip(names, texts, strict=True):
            yield f"{name}: {text}"
        if behind.startswith("<"):
            yield f"v{number}: ({' | '.join(names)}) {behind}"
            return
        for name in names:
            yield f"E{name}: {name} {behind}"
        yield f"v{number}: {' | '.join(f'E{name}' for name in names)}"

    def _around(self, key: str, *, is_text: bool) -> tuple[str, str]:
        """The symbols before and after a value."""
        tags = self._tags
        key_end = tags.key_end if is_text or not tags.other else tags.other
        before = self._symbols(f"{tags.open}{key}{key_end}")
        return before, self._symbols(tags.value_end.replace("{key}", key))

    def _symbols(self, text: str) -> str:
        """A text of the form, with its one-token marks, as symbols of the grammar."""
        symbols, plain = [], ""
        for piece in pieces(text):
            if piece not in self._tokens:
                plain += piece
                continue
            symbols += [_literal(plain)] * bool(plain) + [self._mark(piece)]
            plain = ""
        return " ".join(symbols + [_literal(plain)] * bool(plain))

    def _texts(self, part: object, key: str, depth: int) -> Iterator[str]:
        """The terminals for a string value."""
        if part is False:
            return
        if part is True or not isinstance(part, dict):
            part = {}
        if depth == 0:
            raise Unguided(f"'{key}' refers to itself")
        kinds = part.get("type", "string")
        if "string" not in ([kinds] if isinstance(kinds, str) else kinds):
            return
        keywords = part.keys() - WITHOUT_EFFECT
        if "enum" in part:
            values = [value for value in part["enum"] if isinstance(value, str)]
            free = [value for value in values if not any(mark in value for mark in self._marks)]
            if free:
                yield f"/{'|'.join(map(_escaped, free))}/"
        elif "$ref" in part:
            self._alone("$ref", keywords, key)
            target = self._guide.get("$defs", {}).get(part["$ref"].removeprefix("#/$defs/"))
            yield from self._texts(target, key, depth - 1)
        elif "anyOf" in part:
            self._alone("anyOf", keywords, key)
            for one in part["anyOf"]:
                yield from self._texts(one, key, depth - 1)
        else:
            yield " & ".join((*self._expressions(part, key), TEXT_NAME))

    @staticmethod
    def _alone(keyword: str, keywords: set[str], key: str) -> None:
        if keywords != {keyword}:
            raise Unguided(f"'{key}' has other keywords beside {keyword}")

    def _expressions(self, part: Json, key: str) -> Iterator[str]:
        patterns = [part["pattern"]] if "pattern" in part else []
        for one in part.get("allOf", ()):
            if not isinstance(one, dict) or one.keys() != {"pattern"}:
                raise Unguided(f"'{key}' has other keywords than patterns in allOf")
            patterns.append(one["pattern"])
        for pattern in patterns:
            yield f"/{_between_slashes(whole(pattern, key))}/"
        least, most = part.get("minLength") or 0, part.get("maxLength")
        if least or most is not None:
            yield f"/{ANY}{{{least},{'' if most is None else most}}}/"


def whole(pattern: str, key: str) -> str:
    """An unanchored pattern as a pattern of the whole text."""
    signs = list(_signs(pattern))
    begins, ends = (0, "^", 0) in signs, (len(pattern) - 1, "$", 0) in signs
    inside = [
        sign
        for at, sign, _ in signs
        if sign in "^$" and not (at == 0 and begins) and not (at == len(pattern) - 1 and ends)
    ]
    parted = any(sign == "|" and depth == 0 for _, sign, depth in signs)
    if inside or (parted and (begins or ends)):
        raise Unguided(f"the pattern of '{key}' has '^' or '$' in its middle")
    bare = pattern[begins : len(pattern) - ends]
    return f"{'' if begins else f'{ANY}*'}(?:{bare}){'' if ends else f'{ANY}*'}"


def _signs(pattern: str) -> Iterator[tuple[int, str, int]]:
    """Each `^`, `$` and `|` outside of character classes: place, sign and depth of groups."""
    depth = at = 0
    in_class = False
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif in_class:
            in_class = sign != "]"
        elif sign == "[":
            in_class = True
        elif sign in "()":
            depth += 1 if sign == "(" else -1
        elif sign in "^$|":
            yield at, sign, depth
        at += 1


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    """A text as an expression, with all but letters and digits escaped by number."""
    return "".join(c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


def _between_slashes(pattern: str) -> str:
    """A pattern without slashes, which would end the terminal."""
    return pattern.replace("\\/", "/").replace("/", "\\x{2f}").replace("\n", "\\x{a}")

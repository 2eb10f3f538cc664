"""Builds Lark grammars for call arguments that are no JSON: members between tags, and literals.

Between tags a member that the reader reads as text is text here too, restricted by its schema's
string keywords; every other member is JSON. In literals each value is written as the form quotes
it. Members come in the schema's order. A schema that a grammar cannot express raises `Unguided`.
Works on schemas as `schema/normalise.py` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from trt_responses.dialects.templates.families import Calls
from trt_responses.dialects.templates.pieces import is_mark, pieces
from trt_responses.dialects.templates.read.arguments import TEXT, TYPES, types_of
from trt_responses.dialects.templates.read.tag_body import CDATA
from trt_responses.language.steering import Unguided

Json = dict[str, Any]

STAND_INS = 0x10FF00
"""First of the characters that stand in for one-token marks; no value may contain them."""
_CHARACTERS = rf"\x{{9}}\x{{a}}\x{{d}}\x{{20}}-\x{{{STAND_INS - 1:x}}}"
ANY = f"[{_CHARACTERS}]"
"""One character of a value."""
STRICTLY = {"x-guidance": {"whitespace_flexible": False}}
"""Forbids free white space, in which a model can loop for ever."""
WITHOUT_EFFECT = frozenset({"type", "title", "description", "$defs"})
DEPTH = 8
"""Maximum depth of followed references."""
_OBJECT = frozenset({"properties", "required", "additionalProperties"})
_ARRAY = frozenset({"items", "minItems", "maxItems"})
_NUMBER = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_STRING = frozenset({"pattern", "minLength", "maxLength"})
OF_LITERALS = _OBJECT | _ARRAY | _NUMBER | _STRING
_WORDS = {"boolean": "/true|false|True|False/", "null": "/null|None/"}
_ESCAPE = r"\x{5c}[nrt\x{22}\x{27}\x{5c}]"
"""An escape that the reader of literals knows."""
_BARE = re.compile(r"[^\s,\[\](){}:=<>|\\'\"]+")
"""A key without quotes."""


class _Text(NamedTuple):
    """A way to write a string."""

    free: str
    """The terminal for any string."""
    plain: str
    """The terminal for a string without escapes, which restrictions apply to."""
    barred: Sequence[str]
    """What a string without escapes cannot contain."""
    opening: Sequence[str] = ()
    """The symbols before the text."""
    closing: Sequence[str] = ()


def arguments_grammar(
    calls: Calls,
    guide: Json,
    schema: Mapping[str, object],
    tokens: Collection[str],
    mark: Callable[[str], str],
) -> str:
    """The grammar of one tool's arguments. `guide`: the normalised schema; `schema`: the client's;
    `tokens`: the marks that are one token; `mark` returns one as a symbol of the grammar."""
    if extra := guide.keys() - _OBJECT - WITHOUT_EFFECT:
        raise Unguided(f"its members depend on {', '.join(sorted(extra))}")
    members = guide.get("properties", {})
    if not members and guide.get("additionalProperties") is not False:
        raise Unguided("it names no members and allows any")
    if _refers_to_whole(guide):
        raise Unguided("it refers to itself")
    grammar = _Literals if calls.body == "literal" else _Tagged
    return "\n".join(grammar(calls, guide, schema, tokens, mark).lines())


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
        self._calls, self._tags = calls, calls.tags
        self._guide, self._schema, self._mark = guide, schema, mark
        self._tokens = tokens
        self._rules: list[str] = []
        self._ways: list[_Text] = []

    def _rule(self, text: str, kind: str = "r") -> str:
        """The name of a new rule; of a new terminal if `kind` is upper case."""
        name = f"{kind}{len(self._rules)}"
        self._rules.append(f"{name}: {text}")
        return name

    def _json(self, part: Json) -> str:
        """The symbol for JSON of a schema."""
        whole = {**part, **STRICTLY}
        if "$defs" in self._guide:
            whole["$defs"] = self._guide["$defs"]
        return self._rule(f"%json {json.dumps(whole, ensure_ascii=False)}")

    def _symbols(self, text: str) -> list[str]:
        """A text of the form, with its one-token marks, as symbols of the grammar."""
        tokens = sorted(self._tokens, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, tokens))})", text) if tokens else [text]
        return [self._mark(p) if p in self._tokens else _literal(p) for p in parts if p]

    def _strings(self, part: object, key: str, behind: Sequence[str] = ()) -> list[str]:
        """A string value before these symbols, in each way to write one."""
        return [
            self._enclosed(way.opening, text, (*way.closing, *behind))
            for way in self._ways
            for text in self._texts(way, part, key, DEPTH)
        ]

    def _enclosed(self, before: Sequence[str], text: str, behind: Sequence[str]) -> str:
        """A text between symbols. It is one terminal with a mark that is text: alone it would match
        half of the mark."""
        name = self._rule(text, "T")
        mark = [*takewhile(lambda symbol: not symbol.startswith("<["), behind)]
        if mark:
            name = self._rule(" ".join((name, *mark)), "T")
        return " ".join((*before, name, *behind[len(mark) :]))

    def _texts(self, way: _Text, part: object, key: str, depth: int) -> Iterator[str]:
        """The terminals for a string."""
        if part is False:
            return
        if part is True or not isinstance(part, dict):
            part = {}
        if depth == 0:
            raise Unguided(f"'{key}' refers to itself")
        kinds = part.get("type", "string")
        if "string" not in ([kinds] if isinstance(kinds, str) else kinds):
            return
        if "enum" in part:
            values = [value for value in part["enum"] if isinstance(value, str)]
            free = [value for value in values if not any(mark in value for mark in way.barred)]
            if free:
                yield f"/{'|'.join(map(_escaped, free))}/"
        elif "$ref" in part:
            target = self._definition(_alone("$ref", part, key))
            yield from self._texts(way, target, key, depth - 1)
        elif "anyOf" in part:
            for one in _alone("anyOf", part, key):
                yield from self._texts(way, one, key, depth - 1)
        else:
            restrictions = [*_expressions(part, key)]
            yield " & ".join((*restrictions, way.plain)) if restrictions else way.free

    def _definition(self, reference: str) -> object:
        return self._guide.get("$defs", {}).get(reference.removeprefix("#/$defs/"))


class _Tagged(_Grammar):
    """Members between tags."""

    def lines(self) -> Iterator[str]:
        calls, tags = self._calls, self._tags
        texts = tags.open, tags.key_end, tags.value_end.replace("{key}", "")
        own = (one for text in texts for one in pieces(text) if is_mark(one) and one[-1] in ">]")
        marks = (*own, calls.open, calls.close, *[CDATA] * tags.cdata)
        yield f"TEXT: {_without(marks)}"
        self._ways.append(_Text("TEXT", "TEXT", marks))
        if tags.cdata:
            end = "]]>"
            yield f"QUOTED: {_without([end])}"
            self._ways.append(_Text("QUOTED", "QUOTED", [end], [_literal(CDATA)], [_literal(end)]))
        needed, members = self._guide.get("required", ()), self._guide.get("properties", {})
        row = [self._member(key, part) + "?" * (key not in needed) for key, part in members.items()]
        end = calls.after_arguments or ("" if members else "\n")
        yield " ".join(("start:", *row, *self._symbols(end)))
        yield from self._rules

    def _member(self, key: str, part: object) -> str:
        if not key or key != key.strip() or any(sign in key for sign in "<>\n"):
            raise Unguided(f"the name {key!r} cannot be written as a key")
        tags, known = self._tags, self._schema.get("properties")
        known = known if isinstance(known, dict) else {}
        types = types_of(known[key], self._schema) if key in known else TEXT
        behind = self._symbols(tags.value_end.replace("{key}", key))
        if "string" not in types:
            texts = [
                " ".join((*self._symbols(f"{tags.open}{key}{key_end}"), self._json(one), *behind))
                for key_end, one in self._key_ends(part, types)
            ]
            return self._rule(" | ".join(texts))
        texts = self._strings(part, key, behind)
        if not texts:
            raise Unguided(f"'{key}' is read as text, and its schema allows no text")
        if "null" in types and types != TYPES:
            texts.append(self._enclosed((), "/null/", behind))
        before = self._symbols(f"{tags.open}{key}{tags.key_end}")
        return self._rule(f"{' '.join(before)} ({' | '.join(texts)})")

    def _key_ends(self, part: object, types: Collection[str]) -> Sequence[tuple[str, Json]]:
        """The texts between a key and a value that is no string, each with the schema of the value:
        one for each type, if the form names the type there."""
        end, other = self._tags.key_end, self._tags.other
        if end.replace("string", "number") != other:
            return [(other or end, part if isinstance(part, dict) else {})]
        kinds = sorted({"number" if kind == "integer" else kind for kind in types})
        if len(kinds) == 1 and isinstance(part, dict):
            return [(end.replace("string", kinds[0]), part)]
        return [(end.replace("string", kind), {"allOf": [part, {"type": kind}]}) for kind in kinds]


class _Literals(_Grammar):
    """Members as literals between brackets: `city='Oslo', days=2`."""

    def lines(self) -> Iterator[str]:
        quotes = self._tags.quotes
        yield "SEPARATOR: /, ?/"
        yield "COLON: /: ?/"
        if quotes != "'":
            yield f"TEXT: {_without([quotes])}"
            symbols = self._symbols(quotes)
            self._ways.append(_Text("TEXT", "TEXT", [quotes], symbols, symbols))
        for name, quote in (("ONE", "'"), ("TWO", '"')) if quotes == "'" else ():
            yield f"{name}: {_without([quote, chr(92)])}"
            yield rf"{name}_FREE: /(?:[{_CHARACTERS}&&[^{_escaped(quote)}\x{{5c}}]]|{_ESCAPE})*/"
            symbol = [_literal(quote)]
            self._ways.append(_Text(f"{name}_FREE", name, [quote, "\\"], symbol, symbol))
        self._known: dict[str, str] = {}
        start = self._members(self._guide, self._tags.key_end)
        yield " ".join(("start:", start, *self._symbols(self._calls.after_arguments)))
        yield from self._rules

    def _members(self, part: Json, key_end: str = "") -> str:
        """The members of an object. `key_end`: the sign behind the keys of arguments."""
        needed = part.get("required", ())
        first, later = '""', '""'
        for key, one in reversed(part.get("properties", {}).items()):
            pair = self._rule(f"{self._key(key, key_end)} {self._value(one, key)}")
            begins, follows = f"{pair} {later}", f"SEPARATOR {pair} {later}"
            optional = key not in needed
            first = self._rule(begins + f" | {first}" * optional)
            later = self._rule(follows + f" | {later}" * optional)
        return first

    def _key(self, key: str, key_end: str = "") -> str:
        end = _literal(key_end) if key_end else "COLON"
        if _BARE.fullmatch(key) and (key_end or self._tags.quotes != "'"):
            return f"{_literal(key)} {end}"
        if not (quoted := self._strings({"enum": [key]}, key)):
            raise Unguided(f"the name {key!r} cannot be written as a key")
        return f"({' | '.join(quoted)}) {end}"

    def _value(self, part: object, key: str) -> str:
        """The symbol for a value of a schema."""
        if part is False:
            raise Unguided(f"'{key}' allows no value")
        if not isinstance(part, dict) or not part.keys() - WITHOUT_EFFECT | part.keys() & {"type"}:
            return self._named("", {"type": sorted(TYPES - {"integer"})}, key)
        if "$ref" in part:
            reference = _alone("$ref", part, key)
            return self._named(reference, self._definition(reference), key)
        if "anyOf" in part:
            return self._either((self._value(one, key) for one in _alone("anyOf", part, key)), key)
        if "enum" in part:
            return self._either((self._constant(one, key) for one in part["enum"]), key)
        kinds = part.get("type", sorted(TYPES - {"integer"}))
        kinds = [kinds] if isinstance(kinds, str) else kinds
        extra = part.keys() - OF_LITERALS - WITHOUT_EFFECT
        if extra and (extra != {"allOf"} or kinds != ["string"]):
            raise Unguided(f"'{key}' has {', '.join(sorted(extra))}")
        return self._either((self._of_type(kind, part, key) for kind in kinds), key)

    def _either(self, symbols: Iterable[str], key: str) -> str:
        if not (possible := [*filter(None, symbols)]):
            raise Unguided(f"'{key}' allows no value that can be written")
        return self._rule(" | ".join(possible))

    def _named(self, name: str, part: object, key: str) -> str:
        """The one rule for a definition, or for any value."""
        if name not in self._known:
            self._known[name] = f"d{len(self._known)}"
            self._rules.append(f"{self._known[name]}: {self._value(part, key)}")
        return self._known[name]

    def _of_type(self, kind: str, part: Json, key: str) -> str:
        """A value of one type; empty if none can be written."""
        match kind:
            case "string":
                return " | ".join(self._strings({**part, "type": kind}, key))
            case "array":
                return self._array(part, key)
            case "object":
                return self._object(part, key)
            case "boolean" | "null":
                return _WORDS[kind]
        return self._json({"type": kind} | {one: part[one] for one in _NUMBER & part.keys()})

    def _array(self, part: Json, key: str) -> str:
        least, most = part.get("minItems", 0), part.get("maxItems")
        if most == 0:
            return '"[" "]"'
        item = self._value(part.get("items", {}), key)
        count = f"{max(least - 1, 0)},{'' if most is None else most - 1}"
        items = f"{item} (SEPARATOR {item}){{{count}}}" if most != 1 else item
        return f'"[" {items} "]"' if least else f'"[" ({items})? "]"'

    def _object(self, part: Json, key: str) -> str:
        if part.get("properties"):
            return f'"{{" {self._members(part)} "}}"'
        others = part.get("additionalProperties", {})
        if others is False:
            return '"{" "}"'
        name = "/[A-Za-z_][A-Za-z0-9_]*/"
        if self._tags.quotes == "'":
            name = f"({' | '.join(self._strings({}, key))})"
        pair = self._rule(f"{name} COLON {self._value(others, key)}")
        return f'"{{" ({pair} (SEPARATOR {pair})*)? "}}"'

    def _constant(self, value: object, key: str) -> str:
        """One value; empty if it cannot be written."""
        match value:
            case str():
                return " | ".join(self._strings({"enum": [value]}, key))
            case list():
                parts = [self._constant(one, key) for one in value]
                return f'"[" {" SEPARATOR ".join(map("({})".format, parts))} "]"'
            case dict():
                pairs = [f"{self._key(k)} ({self._constant(v, key)})" for k, v in value.items()]
                return f'"{{" {" SEPARATOR ".join(pairs)} "}}"'
        return f"/{_escaped(json.dumps(value))}/"


def _expressions(part: Json, key: str) -> Iterator[str]:
    """The restrictions of a string."""
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


def _alone(keyword: str, part: Json, key: str) -> Any:
    """The value of a keyword that has no other beside it."""
    if part.keys() - WITHOUT_EFFECT != {keyword}:
        raise Unguided(f"'{key}' has other keywords beside {keyword}")
    return part[keyword]


def _without(marks: Sequence[str]) -> str:
    """A terminal for texts without these marks."""
    return f"/{ANY}*/ & ~/{ANY}*(?:{'|'.join(map(_escaped, dict.fromkeys(marks)))}){ANY}*/"


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

"""Schemas and grammars that are honoured: compiled once each, within a time, and kept.

A schema is taken if it can be normalised and llguidance makes a matcher of it. What a schema that
is not strict asks for beyond that is left out, and named. Knows no request and no engine.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import orjson

from trt_responses.frozen import dataclass
from trt_responses.schema.branches import MOST as MOST_BRANCHES
from trt_responses.schema.branches import most_branches
from trt_responses.schema.documents import deepest, longest, parts
from trt_responses.schema.follow import Follower
from trt_responses.schema.judge import Judge
from trt_responses.schema.matching import (
    LARK_LIMITS,
    Expressions,
    GrammarFault,
    json_grammar,
    matcher,
)
from trt_responses.schema.normalise import FOR_STRICT, Left, Normal, Normaliser
from trt_responses.schema.refusals import InvalidSchema, SlowSchema, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trt_responses.schema.matching import Matcher, Pieces

MAX_BYTES = 1_048_576
"""Of one schema: OpenAI's own limits, with room for descriptions."""
CACHED = 64
"""Compiled schemas that are kept."""
_LITERALS = re.compile(
    r'"(?:[^"\\\n]|\\.)*+(?P<text>"?)|/(?:[^/\\\n]|\\.)++(?P<expression>/?)|//[^\n]*'
)
"""Texts and expressions in a Lark grammar, in which any character may stand, and comments. One
without an end is matched whole, too: searching on from each of its marks takes quadratic time."""
_OWN_WORDS = {
    "%json": "which is no part of Lark",
    "%regex": "which is no part of Lark",
    "%llguidance": "which is no part of Lark",
    "%lark": "which is no part of Lark",
    "<": "which would name a token of the model",
    "@": "which would name another grammar",
}
_RULE = re.compile(r"^[ \t]*[?!]?([A-Za-z_]\w*)(?:\.-?\d+)?(?:\[[^\]\n]*\])?[ \t]*:", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")
PLAIN_DEPTHS = (8, 4, 2, 1, 0)
"""How deep a schema that is too much for a guide is followed instead, tried in this row."""
MAX_LEVELS = 400
"""Schemas in a row, through references, or rules of a grammar: engines read them recursively, and
some thousands overflow a thread's stack, which ends the process."""
MAX_CULPRITS = 64
"""Parts that are compiled alone to find the one that is at fault."""
MAX_GRAMMAR = 65_536
"""Characters of a client's own grammar."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a text must be: the source of an engine's guide, and how a text is followed."""

    kind: Literal["json_schema", "lark"]
    source: str
    matcher: Matcher
    judge: Judge | None = None
    left: tuple[Left, ...] = ()
    as_json: Callable[[str], str] | None = None
    """The JSON that is meant, of a text that is written otherwise."""

    def follow(self) -> Follower:
        return Follower(self.matcher.copy(), self.judge, self.as_json)


class Allowance:
    """The time that the schemas of one request have, together, on a clock of the thread's own."""

    def __init__(
        self, limit_s: float = float("inf"), clock_s: Callable[[], float] = time.thread_time
    ) -> None:
        self._limit_s = limit_s
        self._clock_s = clock_s
        self._end_s = clock_s() + limit_s

    def check(self, place: str) -> None:
        if self._clock_s() > self._end_s:
            raise SlowSchema(
                f"Invalid schema: '{place}' is not compiled within {self._limit_s:g} s, which is "
                "all that the schemas of a request have.",
                param=place,
            )


class Forms:
    """Compiles schemas, each distinct one once. May be used by several threads."""

    def __init__(self, kept: int = CACHED, pieces: Pieces | None = None) -> None:
        self._kept = kept
        self._pieces = pieces
        self._known: OrderedDict[bytes, Form] = OrderedDict()
        self._lock = Lock()

    def form(
        self,
        schema: Mapping[str, object],
        place: str,
        allowance: Allowance | None = None,
        *,
        strict: bool = True,
    ) -> Form:
        """`place` is where the schema stands in the request. Raises `InvalidSchema`."""
        key = _key(schema, place, strict)
        form = self._found(key)
        if form is None:
            check_time = (allowance or Allowance()).check
            form = _compiled(dict(schema), place, check_time, self._pieces, strict=strict)
            self._keep(key, form)
        return form

    def lark(self, grammar: str, place: str, allowance: Allowance | None = None) -> Form:
        """The form of a whole text, by a client's own grammar."""
        key = b"lark:" + grammar.encode()
        form = self._found(key)
        if form is None:
            form = _grammar(grammar, place, self._pieces)
            (allowance or Allowance()).check(place)
            self._keep(key, form)
        return form

    def unknown_bytes(self, schema: Mapping[str, object], *, strict: bool) -> int:
        """How much there is to compile; 0 for what is known, and for what is refused at once."""
        try:
            key = _key(schema, "", strict)
        except InvalidSchema:
            return 0
        return 0 if self._found(key) else len(key)

    def _found(self, key: bytes) -> Form | None:
        """None, too, of one whose matcher is over its limits: it is compiled anew."""
        with self._lock:
            if (form := self._known.get(key)) is None or form.matcher.broken:
                return None
            self._known.move_to_end(key)
        return form

    def _keep(self, key: bytes, form: Form) -> None:
        with self._lock:
            self._known[key] = form
            self._known.move_to_end(key)
            if len(self._known) > self._kept:
                self._known.popitem(last=False)


def _key(schema: Mapping[str, object], place: str, strict: bool) -> bytes:
    try:
        source = orjson.dumps(schema)
    except orjson.JSONEncodeError as error:
        raise refused(place, f"cannot be written as JSON: {error}") from None
    if len(source) > MAX_BYTES:
        raise refused(place, f"has {len(source)} bytes, more than {MAX_BYTES}")
    return (b"strict:" if strict else b"plain:") + source


def _compiled(
    schema: dict[str, Any],
    place: str,
    check_time: Callable[[str], None],
    pieces: Pieces | None,
    *,
    strict: bool,
) -> Form:
    expressions = Expressions()
    normal = Normaliser(schema, place, expressions, strict=strict, check_time=check_time).normal()
    try:
        form = _form(normal, expressions, pieces, lambda: check_time(place))
    except GrammarFault as fault:
        if strict:
            where = _culprit(normal, place, check_time)
            raise refused(where, f"cannot be guided: {fault}; {FOR_STRICT}") from None
        left = Left(place, f"is too much for a guide ({fault})")
        form = _plainer(normal, expressions, pieces, left, check_time)
    check_time(place)
    return form


def _form(
    normal: Normal, expressions: Expressions, pieces: Pieces | None, check_time: Callable[[], None]
) -> Form:
    source = orjson.dumps(normal.guide).decode()
    if deepest(normal.guide) > MAX_LEVELS:
        raise GrammarFault(f"it leads through more than {MAX_LEVELS} schemas in a row")
    if '"anyOf"' in source and most_branches(normal.guide, check_time) > MOST_BRANCHES:
        raise GrammarFault("too many of its alternatives begin alike")
    made = matcher(json_grammar(normal.guide), pieces)
    if not made.may_begin():
        raise GrammarFault("it has too many beginnings")
    return Form("json_schema", source, made, Judge(normal.judged, expressions), normal.left)


def _plainer(
    normal: Normal,
    expressions: Expressions,
    pieces: Pieces | None,
    left: Left,
    check_time: Callable[[str], None],
) -> Form:
    """The same without what is deep: its form is all that is promised."""
    for depth in PLAIN_DEPTHS:
        check_time(left.place)
        guide = _cut(normal.guide, depth)
        with suppress(GrammarFault):
            cut = replace(normal, guide=guide, judged=guide, left=(*normal.left, left))
            return _form(cut, expressions, pieces, lambda: check_time(left.place))
    raise refused(left.place, left.why)


def _cut(schema: Any, depth: int) -> Any:
    if not isinstance(schema, dict):
        return schema
    if depth < 1:
        return {"type": schema["type"]} if "type" in schema else {}
    kept = {k: v for k, v in schema.items() if k not in ("$ref", "$defs", "allOf", "pattern")}
    for keyword in ("properties", "patternProperties"):
        if keyword in kept:
            kept[keyword] = {name: _cut(part, depth - 1) for name, part in kept[keyword].items()}
    for keyword in ("items", "additionalProperties"):
        if keyword in kept:
            kept[keyword] = _cut(kept[keyword], depth - 1)
    for keyword in ("prefixItems", "anyOf"):
        if keyword in kept:
            kept[keyword] = [_cut(part, depth - 1) for part in kept[keyword]]
    return kept


def _culprit(normal: Normal, place: str, check_time: Callable[[str], None]) -> str:
    """The place of the smallest part that cannot be compiled by itself, as far as time allows."""
    schema, tried = normal.guide, 0
    if deepest(schema) > MAX_LEVELS:
        return place
    definitions = {"$defs": normal.guide.get("$defs", {})}
    while True:
        for step, part in parts(schema):
            tried += 1
            if tried > MAX_CULPRITS or not isinstance(part, dict):
                continue
            try:
                check_time(place)
                matcher(json_grammar({**definitions, **part}))
            except GrammarFault:
                schema, place = part, f"{place}.{normal.places.get(step, step)}"
                break
            except SlowSchema:
                return place
        else:
            return place


def _grammar(grammar: str, place: str, pieces: Pieces | None) -> Form:
    if len(grammar) > MAX_GRAMMAR:
        raise refused(place, f"has more than {MAX_GRAMMAR} characters")
    plain = _LITERALS.sub(lambda m: m[0] if "" in (m["text"], m["expression"]) else "", grammar)
    for word, what in _OWN_WORDS.items():
        if word in plain:
            raise refused(place, f"holds '{word}', {what}")
    if (levels := _rule_levels(plain)) > MAX_LEVELS:
        raise refused(place, f"has {levels} rules in a row, limit {MAX_LEVELS}")
    try:
        made = matcher(f"%llguidance {{}}\n{grammar}", pieces, LARK_LIMITS)
    except GrammarFault as fault:
        raise refused(place, f"is no grammar that can be followed: {fault}") from None
    if not made.may_begin():
        raise refused(place, "is no grammar that can be followed: it has too many beginnings")
    return Form("lark", grammar, made)


def _rule_levels(plain: str) -> int:
    """How many rules of a Lark grammar stand in a row, each used by the one before; `plain` has no
    texts and no comments."""
    rules: dict[str, list[str]] = {}
    _, *parts = _RULE.split(plain)
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        rules.setdefault(name, []).extend(_NAME.findall(body))
    return longest("start", lambda name: rules.get(name, []), lambda name: name)

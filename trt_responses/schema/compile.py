"""Compiles schemas and grammars into forms, within a time limit, with a cache.

A schema is accepted if it can be normalised and llguidance can build a matcher for it. For a schema
that is not strict, unsupported parts are left out and reported. No request and no engine here.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any, Literal

import orjson

from trt_responses.frozen import dataclass
from trt_responses.schema.branches import MOST as MOST_BRANCHES
from trt_responses.schema.branches import most_branches
from trt_responses.schema.documents import deepest, longest, parts, rebuilt
from trt_responses.schema.follow import Follower
from trt_responses.schema.judge import Judge
from trt_responses.schema.matching import (
    LARK_LIMITS,
    Expressions,
    GrammarFault,
    Matcher,
    Pieces,
    json_grammar,
    matcher,
)
from trt_responses.schema.normalise import FOR_STRICT, Left, Normal, Normaliser
from trt_responses.schema.refusals import InvalidSchema, SlowSchema, refused

MAX_BYTES = 1_048_576
"""Maximum size of one schema: OpenAI's limits, with room for descriptions."""
CACHED = 64
"""Compiled schemas in the cache."""
_LITERALS = re.compile(
    r'"(?:[^"\\\n]|\\.)*+(?P<text>"?)|/(?:[^/\\\n]|\\.)++(?P<expression>/?)|//[^\n]*'
)
"""Strings, expressions and comments in a Lark grammar. An unterminated one matches up to the end:
a search from each of its quotes would take quadratic time."""
_EXTENSIONS = {
    "%json": "which is not part of Lark",
    "%regex": "which is not part of Lark",
    "%llguidance": "which is not part of Lark",
    "%lark": "which is not part of Lark",
    "<": "which would name a token of the model",
    "@": "which would name another grammar",
}
_RULE = re.compile(r"^[ \t]*[?!]?([A-Za-z_]\w*)(?:\.-?\d+)?(?:\[[^\]\n]*\])?[ \t]*:", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")
PLAIN_DEPTHS = (8, 4, 2, 1, 0)
"""Depths to which a schema that is too complex for a guide is cut, tried in this order."""
MAX_LEVELS = 400
"""Maximum nesting of schemas through references, or of grammar rules. Engines read them
recursively: some thousands overflow a thread's stack and crash the process."""
MAX_CULPRITS = 64
"""Parts that are compiled alone to find the faulty one."""
MAX_GRAMMAR = 65_536
"""Maximum characters of a client's grammar."""


@dataclass(frozen=True, slots=True)
class Form:
    """The required form of a text: the source of an engine's guide, and the matcher that checks
    it."""

    kind: Literal["json_schema", "lark"]
    source: str
    matcher: Matcher
    judge: Judge | None = None
    left: tuple[Left, ...] = ()
    as_json: Callable[[str], str] | None = None
    """Converts a text that is not JSON to the JSON that it means."""
    place: str = ""

    def at(self, place: str) -> Form:
        """This form for the same schema at another place of a request."""
        left = (replace(one, place=place + one.place[len(self.place) :]) for one in self.left)
        return replace(self, place=place, left=tuple(left)) if self.left else self

    def follow(self) -> Follower:
        return Follower(self.matcher.copy(), self.judge, self.as_json)


class Allowance:
    """The CPU time limit for all schemas of one request, on the thread's own clock."""

    def __init__(
        self, limit_s: float = float("inf"), clock_s: Callable[[], float] = time.thread_time
    ) -> None:
        self._limit_s = limit_s
        self._clock_s = clock_s
        self._end_s = clock_s() + limit_s

    def check(self, place: str) -> None:
        if self._clock_s() > self._end_s:
            raise SlowSchema(
                f"Invalid schema: '{place}' takes too long to compile: limit "
                f"{self._limit_s:g} s for all schemas of a request.",
                param=place,
            )


class Forms:
    """Compiles schemas, with a cache. Thread-safe."""

    def __init__(self, cached: int = CACHED, pieces: Pieces | None = None) -> None:
        self._cached = cached
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
        """The form of a schema at `place` in the request. Raises `InvalidSchema`."""
        key = _key(schema, place, strict)
        form = self._lookup(key)
        if form is None:
            check_time = (allowance or Allowance()).check
            form = _compiled(dict(schema), place, check_time, self._pieces, strict=strict)
            self._keep(key, form)
        return form.at(place)

    def lark(self, grammar: str, place: str, allowance: Allowance | None = None) -> Form:
        """The form of a whole text that must match a client's grammar."""
        key = b"lark:" + grammar.encode()
        form = self._lookup(key)
        if form is None:
            form = _grammar(grammar, place, self._pieces)
            (allowance or Allowance()).check(place)
            self._keep(key, form)
        return form

    def unknown_bytes(self, schema: Mapping[str, object], *, strict: bool) -> int:
        """The bytes to compile; 0 for a cached schema, or one that is refused at once."""
        try:
            key = _key(schema, "", strict)
        except InvalidSchema:
            return 0
        return 0 if self._lookup(key) else len(key)

    def _lookup(self, key: bytes) -> Form | None:
        """The cached form, or None. A form whose matcher exceeded its limits is compiled again."""
        with self._lock:
            if (form := self._known.get(key)) is None or form.matcher.broken:
                return None
            self._known.move_to_end(key)
        return form

    def _keep(self, key: bytes, form: Form) -> None:
        with self._lock:
            self._known[key] = form
            self._known.move_to_end(key)
            if len(self._known) > self._cached:
                self._known.popitem(last=False)


def _key(schema: Mapping[str, object], place: str, strict: bool) -> bytes:
    try:
        source = orjson.dumps(schema)
    except orjson.JSONEncodeError as error:
        raise refused(place, f"cannot be written as JSON: {error}") from None
    if len(source) > MAX_BYTES:
        raise refused(place, f"is too large: {len(source)} bytes, limit {MAX_BYTES}")
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
        left = Left(place, f"is too complex for a guide ({fault})")
        form = _plainer(normal, expressions, pieces, left, check_time)
    check_time(place)
    return replace(form, place=place)


def _form(
    normal: Normal, expressions: Expressions, pieces: Pieces | None, check_time: Callable[[], None]
) -> Form:
    source = orjson.dumps(normal.guide).decode()
    if deepest(normal.guide) > MAX_LEVELS:
        raise GrammarFault(f"it nests schemas deeper than {MAX_LEVELS} levels")
    if '"anyOf"' in source and most_branches(normal.guide, check_time) > MOST_BRANCHES:
        raise GrammarFault("too many of its alternatives begin alike")
    compiled = matcher(json_grammar(normal.guide), pieces)
    if not compiled.may_begin():
        raise GrammarFault("it has too many beginnings")
    return Form("json_schema", source, compiled, Judge(normal.judged, expressions), normal.left)


def _plainer(
    normal: Normal,
    expressions: Expressions,
    pieces: Pieces | None,
    left: Left,
    check_time: Callable[[str], None],
) -> Form:
    """The form of the schema cut to a smaller depth: only the cut schema is enforced."""
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
    shallow = {k: v for k, v in schema.items() if k not in ("$ref", "$defs", "allOf", "pattern")}
    return rebuilt(shallow, lambda part: _cut(part, depth - 1))


def _culprit(normal: Normal, place: str, check_time: Callable[[str], None]) -> str:
    """The place of the smallest part that fails to compile alone, as far as time allows."""
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
        raise refused(place, f"is too long: {len(grammar)} characters, limit {MAX_GRAMMAR}")
    plain = _LITERALS.sub(lambda m: m[0] if "" in (m["text"], m["expression"]) else "", grammar)
    for word, what in _EXTENSIONS.items():
        if word in plain:
            raise refused(place, f"contains '{word}', {what}")
    if (levels := _rule_levels(plain)) > MAX_LEVELS:
        raise refused(place, f"nests rules too deep: {levels} levels, limit {MAX_LEVELS}")
    try:
        compiled = matcher(f"%llguidance {{}}\n{grammar}", pieces, LARK_LIMITS)
    except GrammarFault as fault:
        raise refused(place, f"is not a supported grammar: {fault}") from None
    if not compiled.may_begin():
        raise refused(place, "is not a supported grammar: it has too many beginnings")
    return Form("lark", grammar, compiled)


def _rule_levels(plain: str) -> int:
    """The nesting depth of a Lark grammar's rules. `plain`: the grammar without strings and
    comments."""
    rules: dict[str, list[str]] = {}
    _, *parts = _RULE.split(plain)
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        rules.setdefault(name, []).extend(_NAME.findall(body))
    return longest("start", lambda name: rules.get(name, []), lambda name: name)

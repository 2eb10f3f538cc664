"""Judges whether a whole value follows a JSON schema, and where it departs.

It reads the client's own schema and shares only the translation of patterns with the guide. Each
pair of schema and value is judged once, within a limited number of steps. `formats.JUDGES` judges
formats; unknown keywords allow anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from operator import ge, gt, le, lt
from typing import Any, TypeGuard

import orjson

from trt_responses.schema.documents import Document
from trt_responses.schema.formats import has_format
from trt_responses.schema.matching import Expressions
from trt_responses.schema.refusals import SHOWN, Departure, OutOfSteps, shown

MAX_STEPS = 300_000
"""Maximum steps: pairs of schema and value. A step takes about a microsecond."""
STEPS_OF_PATTERN = 10
"""Steps per pattern, plus one for each `CHARACTERS_OF_STEP` of the text."""
CHARACTERS_OF_STEP = 10
MAX_NESTED = 150
"""Maximum nesting of values. JSON parsers have similar limits."""

Schema = dict[str, Any]


Limit = tuple[str, Callable[[Fraction | int, Fraction], bool], str]
LIMITS: Mapping[str, tuple[Limit, ...]] = {
    "string": (
        ("minLength", ge, "is shorter than {} characters"),
        ("maxLength", le, "is longer than {} characters"),
    ),
    "number": (
        ("minimum", ge, "is less than {}"),
        ("maximum", le, "is more than {}"),
        ("exclusiveMinimum", gt, "is not more than {}"),
        ("exclusiveMaximum", lt, "is not less than {}"),
        ("multipleOf", lambda value, step: not value % step, "is no multiple of {}"),
    ),
    "object": (
        ("minProperties", ge, "has fewer than {} members"),
        ("maxProperties", le, "has more than {} members"),
    ),
    "array": (
        ("minItems", ge, "has fewer than {} elements"),
        ("maxItems", le, "has more than {} elements"),
    ),
}
"""Keywords that bound a number or a length, each with its comparison and error text."""


class Unreadable(ValueError):
    """The text is not portable JSON. The message is the reason, as the end of a sentence."""


class Number(float):
    """A number that is not written as an integer; `exact` is its written value."""

    exact: Fraction

    def __new__(cls, text: str) -> Number:
        number = super().__new__(cls, text)
        if not isfinite(number):
            raise Unreadable(f"the number {shown(text)} is too large")
        number.exact = Fraction(Decimal(text)) if number else Fraction(0)
        return number


def _whole(text: str) -> int:
    if len(text) > 310 or not isfinite(float(text)):
        raise Unreadable(f"the number {shown(text)} is too large")
    return int(text)


def _constant(name: str) -> object:
    raise Unreadable(f"{name} is not JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False)
_DECODER = json.JSONDecoder(parse_float=Number, parse_int=_whole, parse_constant=_constant)


def read(text: str) -> Any:
    """The value of a text, with exact numbers; the last of two equal names wins, as in JSON
    parsers. Raises `Unreadable`."""
    try:
        return _DECODER.decode(text)
    except Unreadable:
        raise
    except RecursionError:
        raise Unreadable("it is nested too deep") from None
    except ValueError as error:
        raise Unreadable(f"it is not JSON ({error})") from None


class Judge:
    """Judges values by one schema. Thread-safe."""

    def __init__(self, schema: Schema, expressions: Expressions) -> None:
        self.document = Document(schema)
        self.expressions = expressions
        self._allowed: dict[tuple[str, int], frozenset[object]] = {}

    def departure(self, value: Any) -> Departure | None:
        try:
            return self.departure_within(MAX_STEPS, value)
        except OutOfSteps:
            return Departure((), "it is too large or too deep to be judged")

    def departure_within(self, steps: int, value: Any) -> Departure | None:
        """The departure, or None. Raises `OutOfSteps` if `steps` are too few."""
        try:
            return _Trial(self, steps).follow(self.document.root, value)
        except RecursionError:
            raise OutOfSteps from None

    def allowed(
        self, keyword: str, schema: Schema, spend: Callable[[int], None]
    ) -> frozenset[object]:
        """The values of an `enum` or a `const`, in canonical form."""
        cached = self._allowed.get((keyword, id(schema)))
        if cached is None:
            values = schema[keyword] if keyword == "enum" else [schema[keyword]]
            spend(len(orjson.dumps(values)) // CHARACTERS_OF_STEP)
            cached = self._allowed[keyword, id(schema)] = frozenset(map(canonical, values))
        return cached


class _Trial:
    """The judgement of one value."""

    def __init__(self, judge: Judge, steps: int) -> None:
        self._judge = judge
        self._left = steps
        self._verdicts: dict[tuple[int, int], Departure | None] = {}
        self._path: list[str | int] = []
        self._under_way: set[tuple[int, int]] = set()

    def follow(self, schema: Any, value: Any) -> Departure | None:
        if isinstance(schema, bool):
            return None if schema else self._departs(f"{_excerpt(value)} is not allowed here")
        pair = (id(schema), id(value))
        if pair in self._verdicts:
            verdict = self._verdicts[pair]
            # Equal small values may be one object in many places, each with its own departure.
            if verdict is None or isinstance(value, dict | list):
                return verdict
        if pair in self._under_way:
            return None  # a schema that refers to itself adds nothing for the same value
        self._spend(1)
        if len(self._path) > MAX_NESTED:
            raise OutOfSteps
        self._under_way.add(pair)
        try:
            verdict = next(filter(None, self._departures(schema, value)), None)
        finally:
            self._under_way.discard(pair)
        self._verdicts[pair] = verdict
        return verdict

    def _spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise OutOfSteps

    def _departs(self, why: str) -> Departure:
        return Departure(tuple(self._path), why)

    def _inside(self, step: str | int, schema: Any, value: Any) -> Departure | None:
        self._path.append(step)
        try:
            return self.follow(schema, value)
        finally:
            self._path.pop()

    def _departures(self, schema: Schema, value: Any) -> Iterator[Departure | None]:
        if value is None and schema.get("nullable") is True and "type" in schema:
            return
        if "$ref" in schema and (target := self._judge.document.target(schema["$ref"])) is not None:
            yield self.follow(target, value)
        if "type" in schema:
            types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            if not any(is_type(value, kind) for kind in types):
                yield self._departs(f"{_excerpt(value)} is not of type {'/'.join(map(str, types))}")
        if "enum" in schema and not self._is_one_of("enum", schema, value):
            yield self._departs(f"{_excerpt(value)} is none of the values of 'enum'")
        if "const" in schema and not self._is_one_of("const", schema, value):
            yield self._departs(f"{_excerpt(value)} is not {_excerpt(schema['const'])}")
        yield from self._combined(schema, value)
        if isinstance(value, str):
            yield from self._text(schema, value)
        elif isinstance(value, dict):
            yield from self._members(schema, value)
        elif isinstance(value, list):
            yield from self._elements(schema, value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from self._limits("number", schema, fraction(value), shown(value))

    def _is_one_of(self, keyword: str, schema: Schema, value: Any) -> bool:
        return canonical(value) in self._judge.allowed(keyword, schema, self._spend)

    def _combined(self, schema: Schema, value: Any) -> Iterator[Departure | None]:
        for part in schema.get("allOf", ()):
            yield self.follow(part, value)
        if "anyOf" in schema:
            faults = [d for part in schema["anyOf"] if (d := self.follow(part, value))]
            if len(faults) == len(schema["anyOf"]):
                yield self._deepest(faults)
        if "oneOf" in schema:
            faults = [d for part in schema["oneOf"] if (d := self.follow(part, value))]
            if len(faults) == len(schema["oneOf"]):
                yield self._deepest(faults)
            elif len(faults) < len(schema["oneOf"]) - 1:
                yield self._departs(f"{_excerpt(value)} follows several alternatives of 'oneOf'")
        if "not" in schema and self.follow(schema["not"], value) is None:
            yield self._departs(f"{_excerpt(value)} is what 'not' forbids")
        if "if" in schema:
            branch = "then" if self.follow(schema["if"], value) is None else "else"
            yield self.follow(schema.get(branch, True), value)

    def _deepest(self, faults: Sequence[Departure]) -> Departure:
        """The departure of the alternative that got furthest: most likely the intended one."""
        if not faults:
            return self._departs("no alternative is allowed")
        return max(faults, key=lambda departure: len(departure.path))

    def _limits(
        self, kind: str, schema: Schema, measure: Fraction | int, shown: str
    ) -> Iterator[Departure | None]:
        for keyword, holds, why in LIMITS[kind]:
            limit = schema.get(keyword)
            if limit is True:  # older drafts: the bound beside it is excluded
                limit = schema.get(keyword.removeprefix("exclusive").lower())
            if _is_number(limit) and not holds(measure, fraction(limit)):
                yield self._departs(f"{shown} {why.format(limit)}")

    def _text(self, schema: Schema, value: str) -> Iterator[Departure | None]:
        yield from self._limits("string", schema, len(value), _excerpt(value))
        if "pattern" in schema and not self._matches(schema["pattern"], value):
            yield self._departs(f"{_excerpt(value)} does not match {shown(schema['pattern'])}")
        if isinstance(name := schema.get("format"), str) and not has_format(value, name):
            yield self._departs(f"{_excerpt(value)} is no {name}")

    def _matches(self, pattern: str, text: str) -> bool:
        self._spend(STEPS_OF_PATTERN + len(text) // CHARACTERS_OF_STEP)
        return self._judge.expressions.matches(pattern, text)

    def _members(self, schema: Schema, value: dict[str, Any]) -> Iterator[Departure | None]:
        required = schema.get("required")
        for name in required if isinstance(required, list) else ():
            if name not in value:
                yield self._departs(f"{shown(name)!r} is missing")
        yield from self._limits("object", schema, len(value), "it")
        listed, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        rest = schema.get("additionalProperties", True)
        for name, inner in value.items():
            applicable = [listed[name]] if name in listed else []
            applicable += [part for p, part in patterns.items() if self._matches(p, name)]
            for part in applicable or [rest]:
                yield self._inside(name, part, inner)
        if "propertyNames" in schema:
            for name in value:
                yield self._inside(name, schema["propertyNames"], name)
        yield from self._dependent(schema, value)

    def _dependent(self, schema: Schema, value: dict[str, Any]) -> Iterator[Departure | None]:
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, needs in schema.get(keyword, {}).items():
                if name not in value:
                    continue
                if not isinstance(needs, list):
                    yield self.follow(needs, value)
                elif missing := [other for other in needs if other not in value]:
                    yield self._departs(f"{shown(name)!r} needs {shown(missing[0])!r}")

    def _elements(self, schema: Schema, value: list[Any]) -> Iterator[Departure | None]:
        yield from self._limits("array", schema, len(value), "it")
        first, rest = tuple_of(schema)
        for place, inner in enumerate(value):
            yield self._inside(place, first[place] if place < len(first) else rest, inner)
        if schema.get("uniqueItems") is True:
            self._spend(len(value))
            if len(set(map(canonical, value))) < len(value):
                yield self._departs("it contains an element twice ('uniqueItems')")
        if "contains" in schema:
            fits = sum(self.follow(schema["contains"], inner) is None for inner in value)
            least, most = schema.get("minContains"), schema.get("maxContains")
            if fits < (1 if least is None else least) or fits > (fits if most is None else most):
                yield self._departs("its elements do not satisfy 'contains'")


def tuple_of(schema: Mapping[str, Any]) -> tuple[Sequence[Any], Any]:
    """The schemas of an array's first elements, and the schema of the rest; older drafts too."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return schema.get("prefixItems", ()), items


def fraction(number: float) -> Fraction:
    """The written value, exactly; for a schema's number, its shortest spelling."""
    if isinstance(number, Number):
        return number.exact
    return Fraction(number) if isinstance(number, int) else Fraction(Decimal(repr(number)))


def is_type(value: object, kind: object) -> bool:
    """Whether a value has a JSON Schema type."""
    match kind:
        case "integer":
            return _is_number(value) and (isinstance(value, int) or value.is_integer())
        case "number":
            return _is_number(value)
        case "null":
            return value is None
        case "object" | "array" | "string" | "boolean":
            types = {"object": dict, "array": list, "string": str, "boolean": bool}
            return isinstance(value, types[kind])
    return False


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def canonical(value: Any) -> object:
    """A hashable form, equal for values that JSON Schema treats as equal: 1 and 1.0, not true and
    1."""
    match value:
        case bool() | None:
            return ("literal", value)
        case int() | float():
            return fraction(value)
        case list():
            return ("array", tuple(map(canonical, value)))
        case dict():
            return ("object", frozenset((name, canonical(v)) for name, v in value.items()))
    return value


def _excerpt(value: object) -> str:
    if isinstance(value, Number | float | int) and not isinstance(value, bool):
        return shown(value)
    if isinstance(value, str):
        value = value[: SHOWN + 1]
    written = ""
    for piece in _ENCODER.iterencode(value):
        written += piece
        if len(written) > SHOWN:
            break
    return shown(written)

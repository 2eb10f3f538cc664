"""A client's JSON schema in the words that every engine's guide reads alike.

What the result allows, the schema allows too, but for what is left out of it, and for what only a
judge of the whole text can say. Unknown keywords are annotations; older drafts, formats and
patterns are written out. Knows no engine.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING, Any, cast

import orjson

from trt_responses.frozen import dataclass
from trt_responses.schema.documents import Document, parts
from trt_responses.schema.formats import EXPRESSIONS
from trt_responses.schema.judge import Judge, fraction, tuple_of
from trt_responses.schema.patterns import PatternFault, Translated, translate
from trt_responses.schema.refusals import refused, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trt_responses.schema.matching import Expressions

Schema = dict[str, Any]

Bound = tuple[Fraction, bool]
"""A number, and whether it is excluded."""

MAX_DEPTH = 48
"""Schemas in schemas; llguidance reads 128 levels of JSON, of which each takes two."""
MAX_SCHEMAS = 20_000
MAX_OPTIONAL = 400
"""Members of one object that may be left out. With 500, llguidance breaks off at the first."""
MAX_VALUES = 10_000
"""Of one `enum`."""
MAX_REPEAT = 65_536
"""Of characters and elements; more than a text may have is no bound."""
LARGEST = 2**62
"""Whole numbers from here on crash llguidance (`const`), or are no bounds to it."""
WIDEST = 10**15
"""Bounds of numbers with a fraction: beyond, a double has none."""
DIGITS = 15
"""Of a number with a fraction: llguidance reads more of them otherwise than Python."""
LARGEST_STEP = 4_096
"""Of `multipleOf`: each unit is a state of an automaton."""
MAX_CONJOINED = 3
"""Patterns that one text must match at once."""

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
FOR_STRICT = "leave it out, or leave out 'strict'"
UNGUIDED = {
    "not": "forbids, which no guide can",
    "if": "makes one part depend on another, which no guide can",
    "contains": "asks for an element anywhere, which no guide can",
    "dependentRequired": "makes one part depend on another, which no guide can",
    "dependentSchemas": "makes one part depend on another, which no guide can",
    "dependencies": "makes one part depend on another, which no guide can",
    "unevaluatedProperties": "depends on other parts, which no guide can",
    "unevaluatedItems": "depends on other parts, which no guide can",
}
"""Keywords that no guide can follow, and why. The judge knows most of them."""
CONTROL_SPELLING = re.compile(r"<\|\w+\|>")
SPELLS_CONTROL = "spells a control token, which no text may be made to hold"


@dataclass(frozen=True, slots=True)
class Left:
    """What of a schema is not followed, and where it stands."""

    place: str
    why: str


@dataclass(frozen=True, slots=True)
class Normal:
    """`guide` is for engines, `judged` for the judge; `left` is in neither."""

    guide: Schema
    judged: Schema
    left: tuple[Left, ...]
    places: Mapping[str, str]
    """Where the definitions of the guide stand in the client's schema."""


class Normaliser:
    """One schema's. `strict` refuses what would be left."""

    def __init__(
        self,
        schema: Schema,
        place: str,
        expressions: Expressions,
        *,
        strict: bool,
        check_time: Callable[[str], None],
    ) -> None:
        self._root = schema
        self._place = place
        self._expressions = expressions
        self._strict = strict
        self._check_time = check_time
        self._document = Document(schema)
        self._count = 0
        self._left: list[Left] = []
        self._targets: dict[int, str] = {}
        self._definitions: Schema = {}
        self._waiting: list[tuple[str, object, str]] = []
        self._dropped: dict[int, set[str]] = {}
        self._places: dict[str, str] = {}

    def normal(self) -> Normal:
        guide = cast("Schema", self._walk(self._root, self._place, 0))
        while self._waiting:
            name, target, place = self._waiting.pop()
            self._definitions[name] = self._walk(target, place, 0)
        if self._definitions:
            guide = {**guide, "$defs": self._definitions}
        check_that_it_ends(guide, self._place)
        judged = self._without_dropped(self._root) if self._dropped else self._root
        return Normal(guide, cast("Schema", judged), tuple(self._left), self._places)

    def _leave(self, schema: Schema, keyword: str, place: str, why: str) -> None:
        """Not followed, and not judged; refused if all of it was promised."""
        if self._strict:
            raise refused(place, f"{why}: {FOR_STRICT}", keyword)
        self._left.append(Left(f"{place}.{keyword}", why))
        self._dropped.setdefault(id(schema), set()).add(keyword)

    def _without_dropped(self, value: Any) -> Any:
        if isinstance(value, dict):
            gone = self._dropped.get(id(value), ())
            return {k: self._without_dropped(v) for k, v in value.items() if k not in gone}
        return [self._without_dropped(v) for v in value] if isinstance(value, list) else value

    def _walk(self, schema: object, place: str, depth: int) -> Schema | bool:
        self._check_time(self._place)
        self._count += 1
        if depth > MAX_DEPTH:
            raise refused(place, f"is deeper than {MAX_DEPTH} schemas")
        if self._count > MAX_SCHEMAS:
            raise refused(self._place, f"holds more than {MAX_SCHEMAS} schemas")
        if isinstance(schema, bool):
            return schema if depth else ({} if schema else False)
        if not isinstance(schema, dict):
            raise refused(place, "must be a schema: an object")
        types = self._types(schema, place)
        if "enum" in schema or "const" in schema:
            return self._constants(schema, types, place, depth)
        guide: Schema = {} if types is None else {"type": types[0] if len(types) == 1 else types}
        for keyword, why in UNGUIDED.items():
            if keyword in schema and not _says_nothing(keyword, schema):
                self._leave(schema, keyword, place, why)
        if "$ref" in schema:
            self._reference(schema, guide, place)
        self._combinations(schema, guide, place, depth)
        for kind, read in self._readers():
            if types is None or kind in types or (kind == "number" and "integer" in types):
                read(schema, guide, place, depth)
        if schema.get("nullable") is True and types is not None and "null" not in types:
            return {"anyOf": [guide, {"type": "null"}]}
        return guide

    def _readers(self) -> Iterable[tuple[str, Callable[[Schema, Schema, str, int], None]]]:
        return (
            ("string", self._text),
            ("number", self._number),
            ("array", self._array),
            ("object", self._object),
        )

    def _types(self, schema: Schema, place: str) -> list[str] | None:
        if "type" not in schema:
            return None
        value = schema["type"]
        types = value if isinstance(value, list) else [value]
        if not types or not all(isinstance(kind, str) and kind in TYPES for kind in types):
            raise refused(place, f"must be one or more of {', '.join(TYPES)}", "type")
        if "number" in types:
            types = [kind for kind in types if kind != "integer"]
        return list(dict.fromkeys(types))

    def _reference(self, schema: Schema, guide: Schema, place: str) -> None:
        reference = schema["$ref"]
        target = self._document.target(reference)
        if target is None:
            what = f"refers to {shown(reference)!r}, which is not in this schema"
            raise refused(place, what, "$ref")
        if target is self._root:
            guide["$ref"] = "#"
            return
        name = self._targets.get(id(target))
        if name is None or isinstance(target, bool):
            name = self._targets[id(target)] = f"d{len(self._targets)}"
            where = str(reference).removeprefix("#/").replace("/", ".")
            self._places[f"$defs.{name}"] = where
            self._waiting.append((name, target, f"{self._place}.{where}"))
        guide["$ref"] = f"#/$defs/{name}"

    def _combinations(self, schema: Schema, guide: Schema, place: str, depth: int) -> None:
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword not in schema:
                continue
            options = schema[keyword]
            if not isinstance(options, list) or not options:
                raise refused(place, "must be a list of schemas", keyword)
            walked = [
                self._walk(option, f"{place}.{keyword}[{n}]", depth + 1)
                for n, option in enumerate(options)
            ]
            if keyword == "allOf":
                guide["allOf"] = walked
            elif "anyOf" in guide:
                guide.setdefault("allOf", []).append({"anyOf": walked})
            else:
                guide["anyOf"] = walked

    # --- values -------------------------------------------------------------------------------

    def _constants(
        self, schema: Schema, types: list[str] | None, place: str, depth: int
    ) -> Schema | bool:
        """The values that all of the schema allows: what stands beside them is judged here."""
        keyword = "enum" if "enum" in schema else "const"
        values = schema["enum"] if keyword == "enum" else [schema["const"]]
        if not isinstance(values, list) or not 0 < len(values) <= MAX_VALUES:
            raise refused(place, f"must be a list of 1 to {MAX_VALUES} values", keyword)
        if set(schema) - {keyword, "type", "description", "title", "default"}:
            judge = _Judged(self._root, schema, self._expressions)
            values = [value for value in values if judge.allows(value)]
        elif types is not None:
            judge = _Judged(self._root, {"type": types}, self._expressions)
            values = [value for value in values if judge.allows(value)]
        if schema.get("nullable") is True and types is not None and None not in values:
            values = [*values, None]
        if not values:
            raise refused(place, "holds no value that the rest of the schema allows", keyword)
        sayable = [_whole(value) for value in values if _is_sayable(value)]
        if CONTROL_SPELLING.search(orjson.dumps(sayable).decode()):
            raise refused(place, SPELLS_CONTROL, keyword)
        if sayable:
            return {"enum": sayable}
        self._leave(schema, keyword, place, "holds values only that no guide can write")
        return {} if types is None else {"type": types}

    def _text(self, schema: Schema, guide: Schema, place: str, depth: int) -> None:
        sources = []
        if "pattern" in schema and (found := self._pattern(schema, place)) is not None:
            sources.append(found.source)
        name = schema.get("format")
        if isinstance(name, str) and name in EXPRESSIONS:
            sources.append(EXPRESSIONS[name])
        self._counts(schema, guide, place, "minLength", "maxLength")
        if sources:
            guide["pattern"] = f"^(?:{sources[0]})$"
        if len(sources) > 1:
            guide.setdefault("allOf", []).append({"pattern": f"^(?:{sources[1]})$"})
        conjoined = [part for part in guide.get("allOf", ()) if _has_pattern(part)]
        if len(conjoined) > MAX_CONJOINED:
            self._leave(schema, "allOf", place, f"conjoins more than {MAX_CONJOINED} patterns")
            guide["allOf"] = conjoined[:MAX_CONJOINED]

    def _pattern(self, schema: Schema, place: str) -> Translated | None:
        pattern = schema["pattern"]
        if not isinstance(pattern, str):
            raise refused(place, "must be a regular expression", "pattern")
        try:
            found = translate(pattern, quoted=True)
        except PatternFault as fault:
            # Tools that write a format and its pattern say the same twice.
            if schema.get("format") not in EXPRESSIONS:
                self._leave(schema, "pattern", place, f"cannot be followed: {fault}")
            return None
        self._expressions.compile(pattern)  # for the judge, who has no time for it
        # The expressions of our formats keep what such patterns ask for, as Zod writes them.
        if found.looks and schema.get("format") not in EXPRESSIONS:
            self._leave(schema, "pattern", place, "looks ahead, which no guide can")
        return found

    def _number(self, schema: Schema, guide: Schema, place: str, depth: int) -> None:
        """Bounds are drawn inwards to what every guide can say."""
        whole = "integer" in (guide.get("type") or ())
        low, high = self._bounds(schema, place)
        step = self._number_of(schema, "multipleOf", place)
        if step is not None and step <= 0:
            raise refused(place, "must be more than 0", "multipleOf")
        if step is not None and step.denominator == 1 and guide.get("type") == "number":
            guide["type"], whole = "integer", True
        if low is not None and high is not None and _empty(low, high, whole):
            keyword = "minimum" if "minimum" in schema else "exclusiveMinimum"
            raise refused(place, "leaves no number below the greatest", keyword)
        if not whole and ((low and low[0] > WIDEST) or (high and high[0] < -WIDEST)):
            guide["type"], whole = "integer", True
        largest = max((abs(int(bound[0])) for bound in (low, high) if bound), default=0)
        unit = Fraction(1) if whole else Fraction(1, 10 ** max(0, DIGITS - len(str(largest)) + 1))
        widest = Fraction(LARGEST if whole else WIDEST)
        least = max(-widest, _inwards(low, unit)) if low else -widest
        most = min(widest, -_inwards((-high[0], high[1]), unit)) if high else widest
        if least > most:
            keyword = "minimum" if low else "maximum"
            self._leave(schema, keyword, place, "leaves numbers only that no guide can write")
        elif low is not None:
            _bound(guide, "Minimum", low, least, outwards=low[0] < 0)
        if least <= most and high is not None:
            _bound(guide, "Maximum", high, most, outwards=high[0] > 0)
        if step is not None and _is_small(step):
            guide["multipleOf"] = int(step) if step.denominator == 1 else float(step)
        elif step is not None:
            self._leave(schema, "multipleOf", place, "has too many digits for a guide")

    def _bounds(self, schema: Schema, place: str) -> tuple[Bound | None, Bound | None]:
        """The tightest of either side, and whether it is exclusive."""
        low: list[Bound] = []
        high: list[Bound] = []
        for found, plain, exclusive in (
            (low, "minimum", "exclusiveMinimum"),
            (high, "maximum", "exclusiveMaximum"),
        ):
            is_exclusive = schema.get(exclusive)
            bound = self._number_of(schema, plain, place)
            if bound is not None:
                found.append((bound, is_exclusive is True))
            if not isinstance(is_exclusive, bool):
                other = self._number_of(schema, exclusive, place)
                found += [(other, True)] if other is not None else []
        return (
            max(low, default=None),
            min(high, key=lambda bound: (bound[0], not bound[1]), default=None),
        )

    def _number_of(self, schema: Schema, keyword: str, place: str) -> Fraction | None:
        value = schema.get(keyword)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refused(place, "must be a number", keyword)
        return fraction(value)

    def _counts(self, schema: Schema, guide: Schema, place: str, least: str, most: str) -> None:
        for keyword in (least, most):
            value = schema.get(keyword)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
                raise refused(place, "must be a whole number", keyword)
            if value < 0 or (keyword == least and value > MAX_REPEAT):
                raise refused(place, f"must be from 0 to {MAX_REPEAT}", keyword)
            if value <= MAX_REPEAT and not (keyword == least and value == 0):
                guide[keyword] = int(value)
        if guide.get(least, 0) > guide.get(most, MAX_REPEAT):
            raise refused(place, f"is greater than '{most}'", least)

    # --- containers ---------------------------------------------------------------------------

    def _array(self, schema: Schema, guide: Schema, place: str, depth: int) -> None:
        first, rest = tuple_of(schema)
        listed = "items" if isinstance(schema.get("items"), list) else "prefixItems"
        if not isinstance(first, list | tuple):
            raise refused(place, "must be a list of schemas", "prefixItems")
        if first:
            guide["prefixItems"] = [
                self._walk(part, f"{place}.{listed}[{n}]", depth + 1)
                for n, part in enumerate(first)
            ]
        if rest is not True:
            keyword = "additionalItems" if listed == "items" else "items"
            guide["items"] = self._walk(rest, f"{place}.{keyword}", depth + 1)
        self._counts(schema, guide, place, "minItems", "maxItems")

    def _object(self, schema: Schema, guide: Schema, place: str, depth: int) -> None:
        members = self._mapping(schema, "properties", place)
        rest = schema.get("additionalProperties", True)
        if schema.get("unevaluatedProperties") is False and rest is True:
            rest = False if _says_nothing("unevaluatedProperties", schema) else rest
        patterns = dict(self._mapping(schema, "patternProperties", place))
        names = self._names(schema, place)
        if isinstance(names, list):
            members = {name: members.get(name, rest) for name in names}
            rest = False
        elif isinstance(names, str) and not patterns:
            patterns, rest = {names: rest}, False
        required = self._required(schema, place)
        optional = [name for name in members if name not in required]
        if len(optional) > MAX_OPTIONAL:
            what = f"may leave out {len(optional)} members, more than {MAX_OPTIONAL}"
            if self._strict:
                raise refused(place, f"{what}: require some, or nest them", "properties")
            self._left.append(Left(f"{place}.properties", what))
            gone = set(optional[MAX_OPTIONAL:])
            members = {name: part for name, part in members.items() if name not in gone}
            rest = True
        if members:
            guide["properties"] = {
                self._sayable(name, place): self._walk(
                    part, f"{place}.properties.{name}", depth + 1
                )
                for name, part in members.items()
            }
        if required:
            guide["required"] = required
        translated = {
            source: part
            for pattern, part in patterns.items()
            if (source := self._name_pattern(schema, pattern, place)) is not None
        }
        if translated:
            guide["patternProperties"] = {
                source: self._walk(part, f"{place}.patternProperties", depth + 1)
                for source, part in translated.items()
            }
        if rest is not True:
            guide["additionalProperties"] = self._walk(
                rest, f"{place}.additionalProperties", depth + 1
            )
        if not set(members) - set(required):
            self._counts(schema, guide, place, "minProperties", "maxProperties")

    def _required(self, schema: Schema, place: str) -> list[str]:
        required = schema.get("required", [])
        if isinstance(required, bool):
            return []  # the third draft's word, of the member that it stands in
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise refused(place, "must be a list of names", "required")
        return [self._sayable(name, place) for name in dict.fromkeys(required)]

    def _names(self, schema: Schema, place: str) -> list[str] | str | None:
        """What `propertyNames` asks for: the names, or a pattern of them."""
        names = schema.get("propertyNames")
        if isinstance(names, dict) and "$ref" in names:
            names = self._document.target(names["$ref"])
        if not isinstance(names, dict):
            return None
        values = names.get("enum", [names["const"]] if "const" in names else None)
        if isinstance(values, list):
            return [value for value in values if isinstance(value, str)]
        if isinstance(pattern := names.get("pattern"), str):
            return pattern
        if (source := EXPRESSIONS.get(str(names.get("format")))) is not None:
            return f"^(?:{source})$"
        least, most = names.get("minLength", 0), names.get("maxLength", "")
        if isinstance(least, int) and (least or most):
            return f"^[\\s\\S]{{{min(least, 1_000)},{min(most, 1_000) if most else ''}}}$"
        return None

    def _name_pattern(self, schema: Schema, pattern: str, place: str) -> str | None:
        try:
            found = translate(pattern, quoted=True)
        except PatternFault as fault:
            keyword = "patternProperties" if "patternProperties" in schema else "propertyNames"
            self._leave(schema, keyword, place, f"cannot be followed: {fault}")
            return None
        self._expressions.compile(pattern)
        return f"^(?:{found.source})$"

    def _mapping(self, schema: Schema, keyword: str, place: str) -> Schema:
        found = schema.get(keyword, {})
        if not isinstance(found, dict):
            raise refused(place, "must be an object of schemas", keyword)
        return found

    def _sayable(self, name: str, place: str) -> str:
        """llama.cpp takes forced text that spells a control token for the token itself; and guides
        write DEL in a name as it is, but in a text by its number."""
        if CONTROL_SPELLING.search(name) or "\x7f" in name:
            raise refused(f"{place}.properties.{name}", SPELLS_CONTROL)
        return name


class _Judged:
    """A part of a document, judged on its own."""

    def __init__(self, root: Schema, schema: Schema, expressions: Expressions) -> None:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        self._judge = Judge(
            {**{k: root[k] for k in ("$defs", "definitions") if k in root}, **rest}, expressions
        )

    def allows(self, value: object) -> bool:
        return self._judge.departure(value) is None


def _says_nothing(keyword: str, schema: Schema) -> bool:
    value = schema[keyword]
    if keyword == "if":
        return "then" not in schema and "else" not in schema
    if keyword.startswith("unevaluated"):
        together = {"anyOf", "oneOf", "allOf", "$ref", "if"} & set(schema)
        return value in (True, {}) or (keyword == "unevaluatedProperties" and not together)
    return keyword.startswith("depend") and not value


def _has_pattern(part: object) -> bool:
    return isinstance(part, dict) and "pattern" in part


def _inwards(low: Bound, unit: Fraction) -> Fraction:
    """The least number in so many units that a lower bound allows."""
    value, exclusive = low
    nearest = ceil(value / unit) * unit
    return nearest + unit if exclusive and nearest == value else nearest


def _bound(guide: Schema, name: str, asked: Bound, inside: Fraction, *, outwards: bool) -> None:
    """An excluded bound stays one where the numbers nearest to zero are allowed: there llguidance
    would take 0.9 for no number up to 0.99. On the other side the embedded engine's llguidance
    would write an excluded whole number; there the bound is drawn inside."""
    value, exclusive = asked
    if exclusive and outwards and inside.denominator > 1 and float(value) == value:
        guide[f"exclusive{name}"] = int(value) if value.denominator == 1 else float(value)
    else:
        guide[name.lower()] = int(inside) if inside.denominator == 1 else float(inside)


def _empty(low: Bound, high: Bound, whole: bool) -> bool:
    if not whole:
        return low[0] > high[0] or (low[0] == high[0] and (low[1] or high[1]))
    least = floor(low[0]) + 1 if low[1] else ceil(low[0])
    return least > (ceil(high[0]) - 1 if high[1] else floor(high[0]))


def _is_small(step: Fraction) -> bool:
    digits = next((n for n in range(DIGITS) if (step * 10**n).denominator == 1), None)
    return digits is not None and step * 10**digits <= LARGEST_STEP


def _is_sayable(value: Any) -> bool:
    """Whether a guide can hold it: its numbers are small enough, and its texts are Unicode."""
    match value:
        case bool() | None:
            return True
        case int():
            return abs(value) < LARGEST
        case float():
            return value == 0 or (
                1e-15 < abs(value) < WIDEST and float(f"{value:.{DIGITS}g}") == value
            )
        case str():
            return value.isprintable() or not any("\ud800" <= c <= "\udfff" for c in value)
        case list():
            return all(map(_is_sayable, value))
        case dict():
            return all(map(_is_sayable, (*value, *value.values())))
    return False


def _whole(value: Any) -> Any:
    """Whole numbers as such: a guide writes 1 for 1.0, and a check must know it."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(inner) for inner in value]
        case dict():
            return {name: _whole(inner) for name, inner in value.items()}
    return value


def check_that_it_ends(guide: Schema, place: str) -> None:
    """Raises for a schema that every value of must hold another one, for ever."""
    ending: set[int] = set()
    document = Document(guide)
    everything: list[Schema] = []
    waiting: list[object] = [guide]
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, dict):
            everything.append(schema)
            waiting += [inner for _, inner in parts(schema)]
    growing = True
    while growing:
        before = len(ending)
        ending |= {
            id(s)
            for s in reversed(everything)
            if id(s) not in ending and _ends(s, document, ending)
        }
        growing = len(ending) > before
    if id(guide) not in ending:
        raise refused(place, "allows no value that ends")


def _ends(schema: Schema, document: Document, ending: set[int]) -> bool:
    def ends(part: object) -> bool:
        return part is not False and (part is True or id(part) in ending)

    if "$ref" in schema and not ends(document.target(schema["$ref"])):
        return False
    if "anyOf" in schema and not any(map(ends, schema["anyOf"])):
        return False
    if not all(map(ends, schema.get("allOf", ()))):
        return False
    types = schema.get("type")
    kinds: Sequence[str] = TYPES if types is None else types if isinstance(types, list) else [types]
    if set(kinds) - {"object", "array"} or "enum" in schema:
        return True
    if "object" in kinds:
        listed = schema.get("properties", {})
        rest = schema.get("additionalProperties", True)
        if all(ends(listed.get(name, rest)) for name in schema.get("required", ())):
            return True
    least = schema.get("minItems", 0)
    first = schema.get("prefixItems", [])
    needed = [*first[:least], *([schema.get("items", True)] if least > len(first) else [])]
    return "array" in kinds and all(map(ends, needed))

"""Normalises a client's JSON schema to keywords that every engine's guide reads alike.

The result allows only what the schema allows, except for parts that are left out and for rules that
only the judge of the whole text can check. Unknown keywords are annotations; older drafts, formats
and patterns are translated. No engine here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from trt_responses.frozen import dataclass
from trt_responses.schema.documents import Document
from trt_responses.schema.ending import may_end
from trt_responses.schema.formats import EXPRESSIONS
from trt_responses.schema.judge import tuple_of
from trt_responses.schema.keywords import check_keywords
from trt_responses.schema.matching import Expressions
from trt_responses.schema.members import is_alone, members, required, writable
from trt_responses.schema.numbers import counts, number
from trt_responses.schema.patterns import PatternFault, Translated
from trt_responses.schema.refusals import refused, shown
from trt_responses.schema.values import MAX_SPELLED, allowed, spelled_size

Schema = dict[str, Any]

MAX_OPTIONAL = 400
"""Maximum optional members of one object. With 500, llguidance fails at the first byte."""
MAX_CONJOINED = 3
"""Maximum patterns that one text must match."""

FOR_STRICT = "leave it out, or leave out 'strict'"
UNGUIDED = {
    "not": "forbids, which no guide can",
    "if": "makes one part depend on another, which no guide can",
    "contains": "requires an element anywhere, which no guide can",
    "dependentRequired": "makes one part depend on another, which no guide can",
    "dependentSchemas": "makes one part depend on another, which no guide can",
    "dependencies": "makes one part depend on another, which no guide can",
    "unevaluatedProperties": "depends on other parts, which no guide can",
    "unevaluatedItems": "depends on other parts, which no guide can",
}
"""Keywords that no guide supports, and why. The judge checks most of them."""


@dataclass(frozen=True, slots=True)
class Left:
    """A part of a schema that is not enforced: its place and the reason."""

    place: str
    why: str


@dataclass(frozen=True, slots=True)
class Normal:
    """A normalised schema: `guide` for engines, `judged` for the judge; `left` is in neither."""

    guide: Schema
    judged: Schema
    left: tuple[Left, ...]
    places: Mapping[str, str]
    """The places of the guide's definitions in the client's schema."""


class Normaliser:
    """Normalises one schema. With `strict`, unsupported parts are refused."""

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
        self._left: list[Left] = []
        self._targets: dict[int, str] = {}
        self._definitions: Schema = {}
        self._waiting: list[tuple[str, object, str]] = []
        self._dropped: dict[int, set[str]] = {}
        self._places: dict[str, str] = {}
        self._spelled = 0

    def normal(self) -> Normal:
        check_keywords(self._document, self._place, self._check_time)
        guide = cast("Schema", self._whole(self._root, self._place))
        while self._waiting:
            name, target, place = self._waiting.pop()
            self._definitions[name] = self._whole(target, place)
        if self._definitions:
            guide = {**guide, "$defs": self._definitions}
        if not may_end(guide, lambda: self._check_time(self._place)):
            raise refused(self._place, "allows no finite value")
        judged = self._without_dropped(self._root) if self._dropped else self._root
        return Normal(guide, cast("Schema", judged), tuple(self._left), self._places)

    def _leave(self, schema: Schema, keyword: str, place: str, why: str) -> None:
        """Leave a keyword out of guide and judgement; refuse it if the schema is strict."""
        if self._strict:
            raise refused(place, f"{why}: {FOR_STRICT}", keyword)
        self._left.append(Left(f"{place}.{keyword}", why))
        self._dropped.setdefault(id(schema), set()).add(keyword)

    def _without_dropped(self, value: Any) -> Any:
        if isinstance(value, dict):
            gone = self._dropped.get(id(value), ())
            return {k: self._without_dropped(v) for k, v in value.items() if k not in gone}
        return [self._without_dropped(v) for v in value] if isinstance(value, list) else value

    def _whole(self, schema: object, place: str) -> Schema | bool:
        """The guide of a root or a definition, where llguidance does not accept `true`."""
        return {} if schema is True else self._walk(schema, place)

    def _walk(self, schema: Any, place: str) -> Schema | bool:
        self._check_time(self._place)
        if isinstance(schema, bool):
            return schema
        types = _types(schema)
        if "enum" in schema or "const" in schema:
            return self._constants(schema, types, place)
        guide: Schema = {} if types is None else {"type": types[0] if len(types) == 1 else types}
        for keyword, why in UNGUIDED.items():
            if keyword in schema and not _has_no_effect(keyword, schema):
                self._leave(schema, keyword, place, why)
        if "$ref" in schema:
            self._reference(schema, guide, place)
        self._combinations(schema, guide, place)
        for kind, read in (
            ("string", self._text),
            ("number", self._number),
            ("array", self._array),
            ("object", self._object),
        ):
            if types is None or kind in types or (kind == "number" and "integer" in types):
                read(schema, guide, place)
        if schema.get("nullable") is True and types is not None and "null" not in types:
            return {"anyOf": [guide, {"type": "null"}]}
        return guide

    def _reference(self, schema: Schema, guide: Schema, place: str) -> None:
        reference = schema["$ref"]
        target = self._document.target(reference)
        if target is None:
            what = f"refers to {shown(reference)!r}, which this schema does not define"
            raise refused(place, what, "$ref")
        if target is self._root:
            guide["$ref"] = "#"
            return
        name = self._targets.get(id(target))
        if name is None or isinstance(target, bool):
            name = self._targets[id(target)] = f"d{len(self._targets)}"
            document, mark, pointer = str(reference).partition("#/")
            where = (pointer if mark else document).replace("/", ".")
            self._places[f"$defs.{name}"] = where
            self._waiting.append((name, target, f"{self._place}.{where}"))
        guide["$ref"] = f"#/$defs/{name}"

    def _combinations(self, schema: Schema, guide: Schema, place: str) -> None:
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword not in schema:
                continue
            walked = self._each(schema[keyword], f"{place}.{keyword}")
            if keyword == "allOf":
                guide["allOf"] = walked
            elif "anyOf" in guide:
                guide.setdefault("allOf", []).append({"anyOf": walked})
            else:
                guide["anyOf"] = walked

    def _each(self, schemas: Sequence[Any], place: str) -> list[Schema | bool]:
        return [self._walk(part, f"{place}[{n}]") for n, part in enumerate(schemas)]

    # --- values -------------------------------------------------------------------------------

    def _constants(self, schema: Schema, types: list[str] | None, place: str) -> Schema:
        values = allowed(self._root, schema, types, place, self._expressions, self._check_time)
        keyword = "enum" if "enum" in schema else "const"
        self._spelled += spelled_size(values)
        if self._spelled > MAX_SPELLED:
            what = f"makes the schema's values too long: more than {MAX_SPELLED:,} characters"
            raise refused(place, what, keyword)
        if values:
            return {"enum": values}
        self._leave(schema, keyword, place, "has only values that no guide can write")
        return {} if types is None else {"type": types}

    def _number(self, schema: Schema, guide: Schema, place: str) -> None:
        number(schema, guide, place, lambda what, why: self._leave(schema, what, place, why))

    def _text(self, schema: Schema, guide: Schema, place: str) -> None:
        sources = []
        if "pattern" in schema and (pattern := self._pattern(schema, place)) is not None:
            sources.append(pattern.source)
        if (expression := _format(schema)) is not None:
            sources.append(f"^(?:{expression})$")
        counts(schema, guide, place, "minLength", "maxLength")
        if sources:
            guide["pattern"] = sources[0]
        if len(sources) > 1:
            guide.setdefault("allOf", []).append({"pattern": sources[1]})
        conjoined = [
            part for part in guide.get("allOf", ()) if isinstance(part, dict) and "pattern" in part
        ]
        if len(conjoined) > MAX_CONJOINED:
            self._leave(schema, "allOf", place, f"combines more than {MAX_CONJOINED} patterns")
            guide["allOf"] = conjoined[:MAX_CONJOINED]

    def _pattern(self, schema: Schema, place: str) -> Translated | None:
        has_format = _format(schema) is not None
        try:
            translated = self._expressions.compile(schema["pattern"])
        except PatternFault as fault:
            # Some tools write a format and, redundantly, its pattern.
            if not has_format:
                self._leave(schema, "pattern", place, f"is not supported: {fault}")
            return None
        # The expressions of formats satisfy such look-aheads, as Zod writes them.
        if translated.looks and not has_format:
            self._leave(schema, "pattern", place, "looks ahead, which no guide can")
        return translated

    # --- containers ---------------------------------------------------------------------------

    def _array(self, schema: Schema, guide: Schema, place: str) -> None:
        first, rest = tuple_of(schema)
        listed = "items" if isinstance(schema.get("items"), list) else "prefixItems"
        if first:
            guide["prefixItems"] = self._each(first, f"{place}.{listed}")
        if rest is not True:
            keyword = "additionalItems" if listed == "items" else "items"
            guide["items"] = self._walk(rest, f"{place}.{keyword}")
        counts(schema, guide, place, "minItems", "maxItems")

    def _object(self, schema: Schema, guide: Schema, place: str) -> None:
        listed, patterns, rest = members(schema, self._document)
        needed = required(schema, place)
        optional = [name for name in listed if name not in needed]
        if len(optional) > MAX_OPTIONAL:
            what = f"has too many optional members: {len(optional)}, limit {MAX_OPTIONAL}"
            if self._strict:
                raise refused(place, f"{what}: require some, or nest them", "properties")
            self._left.append(Left(f"{place}.properties", what))
            gone = set(optional[MAX_OPTIONAL:])
            listed = {name: part for name, part in listed.items() if name not in gone}
            rest = True
        sources = {self._name_pattern(schema, p, place): part for p, part in patterns.items()}
        for keyword, parts in (("properties", listed), ("patternProperties", sources)):
            walked = {
                writable(name, place): self._walk(part, f"{place}.{keyword}.{name}")
                for name, part in parts.items()
                if name is not None
            }
            if walked:
                guide[keyword] = walked
        if needed:
            guide["required"] = needed
        if rest is not True:
            where = f"{place}.additionalProperties"
            guide["additionalProperties"] = self._walk(rest, where)
        if listed.keys() <= set(needed):
            counts(schema, guide, place, "minProperties", "maxProperties")

    def _name_pattern(self, schema: Schema, pattern: str, place: str) -> str | None:
        self._check_time(self._place)
        try:
            return self._expressions.compile(pattern).source
        except PatternFault as fault:
            keyword = "patternProperties" if "patternProperties" in schema else "propertyNames"
            self._leave(schema, keyword, place, f"is not supported: {fault}")
            return None


def _types(schema: Schema) -> list[str] | None:
    if "type" not in schema:
        return None
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if "number" in types:
        types = [kind for kind in types if kind != "integer"]
    return list(dict.fromkeys(types))


def _format(schema: Schema) -> str | None:
    name = schema.get("format")
    return EXPRESSIONS.get(name) if isinstance(name, str) else None


def _has_no_effect(keyword: str, schema: Schema) -> bool:
    value = schema[keyword]
    if keyword == "if":
        return "then" not in schema and "else" not in schema
    if keyword.startswith("unevaluated"):
        return value in (True, {}) or (keyword == "unevaluatedProperties" and is_alone(schema))
    return keyword.startswith("depend") and not value

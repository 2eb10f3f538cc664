"""One schema to nodes. Walked once, keyword by keyword, and refused at the first that is odd."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from trt_responses.harmony import jsonvalue as j
from trt_responses.harmony.ending import can_end, widest
from trt_responses.harmony.keywords import (
    BOUND_NAMES,
    as_schema,
    bound,
    check_spelling,
    constants,
    fault,
    form_of_text,
    pattern_of,
    repeats,
    room,
    types_of,
)
from trt_responses.harmony.whitelist import (
    ANNOTATIONS,
    APPLIES,
    DEFINITIONS,
    KEYWORDS,
    MAX_ALTERNATIVES,
    MAX_DEPTH,
    MAX_ELEMENTS,
    MAX_REFERENCES,
    MAX_REPEATS,
    MAX_STATES,
    MAX_SUBSCHEMAS,
    TYPES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trt_responses.harmony.jsontext import Node
    from trt_responses.harmony.keywords import Allowance

_REFERENCE = re.compile(r"#/(\$defs|definitions)/[A-Za-z0-9_.-]+")
"""Other names would need two layers of escapes, which engines read differently."""


class Compiler:
    """One schema, from its JSON to a node. Schemas are walked with `MAX_DEPTH` as the bound."""

    def __init__(self, schema: Mapping[str, object], place: str, allowance: Allowance) -> None:
        self._root = schema
        self._place = place
        self._allowance = allowance
        self._count = self._references = self._elements = self._states = 0
        self._named: dict[str, j.Union] = {}

    def compiled(self) -> tuple[str, Node]:
        """The schema as an engine is given it, and what a check follows."""
        root = self._named["#"] = j.Union()
        definitions: list[tuple[j.Union, Mapping[str, object], str]] = []
        for keyword in DEFINITIONS:
            for name, schema in self._mapping(self._root, keyword, self._place).items():
                place = f"{self._place}.{keyword}.{name}"
                union = self._named[f"#/{keyword}/{name}"] = j.Union()
                definitions.append((union, as_schema(schema, place), place))
        written: dict[str, object] = self._fill(root, self._root, self._place, at_root=True)
        for union, schema, place in definitions:
            keyword, name = place[len(self._place) + 1 :].split(".", 1)
            part = written.setdefault(keyword, {})
            assert isinstance(part, dict)
            part[name] = self._fill(union, schema, place)
        if not can_end(root):
            raise fault(self._place, "allows no value that ends")
        if widest(root) > MAX_ALTERNATIVES:
            what = f"holds an 'anyOf' with more than {MAX_ALTERNATIVES} alternatives"
            raise fault(self._place, f"{what}, as they are counted")
        return orjson.dumps(written).decode(), root

    def _fill(
        self, union: j.Union, schema: Mapping[str, object], place: str, *, at_root: bool = False
    ) -> dict[str, object]:
        node, written = self._walk(schema, place, 0, at_root=at_root)
        union.options.append(node)
        if self._alone(union):
            raise fault(place, "refers to itself and to nothing else", "$ref")
        return written

    def _alone(self, union: j.Union) -> bool:
        """A reference that leads back to itself with no value between."""
        waiting, seen = [union], set[int]()
        while waiting:
            for option in waiting.pop().options:
                if option is union:
                    return True
                if isinstance(option, j.Union) and id(option) not in seen:
                    seen.add(id(option))
                    waiting.append(option)
        return False

    def _walk(
        self, schema: Mapping[str, object], place: str, depth: int, *, at_root: bool = False
    ) -> tuple[Node, dict[str, object]]:
        """What the schema allows, and the schema without what allows and forbids nothing."""
        self._allowance.check(self._place)
        self._count += 1
        if depth > MAX_DEPTH:
            raise fault(place, f"is deeper than {MAX_DEPTH} schemas")
        if self._count > MAX_SUBSCHEMAS:
            raise fault(self._place, f"holds more than {MAX_SUBSCHEMAS} schemas")
        told = {key: value for key, value in schema.items() if key not in ANNOTATIONS}
        if at_root:
            told = {key: value for key, value in told.items() if key not in DEFINITIONS}
        for keyword in told:
            if keyword in DEFINITIONS:
                raise fault(place, "stands at the root only", keyword)
            if keyword not in KEYWORDS:
                raise fault(place, "is not supported in a schema", keyword)
        for keyword, read in (("$ref", self._reference), ("anyOf", self._any_of)):
            if keyword in told:
                if len(told) > 1:
                    other = next(key for key in told if key != keyword)
                    raise fault(place, f"is not supported beside '{keyword}'", other)
                return read(told[keyword], f"{place}.{keyword}", depth)
        if "enum" in told or "const" in told:
            return constants(told, place)
        return self._typed(told, place, depth)

    def _reference(self, value: object, place: str, depth: int) -> tuple[Node, dict[str, object]]:
        self._references += 1
        if self._references > MAX_REFERENCES:
            raise fault(place, f"is one of more than {MAX_REFERENCES} references")
        if not isinstance(value, str) or (value != "#" and not _REFERENCE.fullmatch(value)):
            raise fault(place, "must be '#', '#/$defs/NAME' or '#/definitions/NAME'")
        if value not in self._named:
            raise fault(place, f"refers to {value!r:.100}, which is not there")
        return self._named[value], {"$ref": value}

    def _any_of(self, value: object, place: str, depth: int) -> tuple[Node, dict[str, object]]:
        if not isinstance(value, list) or not value:
            raise fault(place, "must be a list of schemas")
        if len(value) > MAX_ALTERNATIVES:
            raise fault(place, f"has more than {MAX_ALTERNATIVES} alternatives")
        pairs = [
            self._walk(as_schema(option, inner := f"{place}[{n}]"), inner, depth + 1)
            for n, option in enumerate(value)
        ]
        union = j.Union([node for node, _ in pairs])
        return union, {"anyOf": [written for _, written in pairs]}

    def _typed(
        self, told: dict[str, object], place: str, depth: int
    ) -> tuple[Node, dict[str, object]]:
        if not told:
            return j.ANY, {}
        types = types_of(told, place)
        for keyword in told:
            if keyword != "type" and APPLIES[keyword].isdisjoint(types):
                raise fault(place, f"means nothing for type {'/'.join(types)}", keyword)
        written: dict[str, object] = {"type": told["type"]}
        nodes = [READERS[kind](self, told, place, depth, written) for kind in types]
        return (nodes[0] if len(nodes) == 1 else j.Union(nodes)), written

    def _object(
        self, told: dict[str, object], place: str, depth: int, written: dict[str, object]
    ) -> Node:
        members, shown = {}, {}
        for name, schema in self._mapping(told, "properties", place).items():
            inner = f"{place}.properties.{name}"
            check_spelling(name, inner)
            members[name], shown[name] = self._walk(as_schema(schema, inner), inner, depth + 1)
        needed = told.get("required", [])
        if not isinstance(needed, list) or not all(isinstance(name, str) for name in needed):
            raise fault(place, "must be a list of names", "required")
        for name in needed:
            if name not in members:
                raise fault(place, f"names {name!r:.100}, which is no property", "required")
        rest: Node | None
        rest, other = self._rest(told, place, depth)
        # Every key is there: an engine's own defaults never show.
        written.update(properties=shown, required=needed, additionalProperties=other)
        return j.Object(members, frozenset(needed), rest)

    def _rest(self, told: dict[str, object], place: str, depth: int) -> tuple[Node | None, object]:
        value = told.get("additionalProperties", True)
        if isinstance(value, bool):
            return (j.ANY if value else None), value
        inner = f"{place}.additionalProperties"
        return self._walk(as_schema(value, inner), inner, depth + 1)

    def _array(
        self, told: dict[str, object], place: str, depth: int, written: dict[str, object]
    ) -> Node:
        least, most = repeats(told, place, "minItems", "maxItems", written)
        self._elements += least + (most or 0)
        if self._elements > MAX_ELEMENTS:
            what = f"is one of those that add up to more than {MAX_ELEMENTS}"
            raise fault(place, what, "maxItems" if most else "minItems")
        first, rest = told.get("prefixItems", []), told.get("items", True)
        if not isinstance(first, list):
            raise fault(place, "must be a list of schemas", "prefixItems")
        pairs = [
            self._walk(as_schema(schema, inner := f"{place}.prefixItems[{n}]"), inner, depth + 1)
            for n, schema in enumerate(first)
        ]
        if pairs:
            written["prefixItems"] = [shown for _, shown in pairs]
        node: Node | None = j.ANY
        if rest is False:
            node, written["items"] = None, False
            if least > len(first):
                raise fault(place, "is greater than the number of elements", "minItems")
        elif rest is not True:
            inner = f"{place}.items"
            node, written["items"] = self._walk(as_schema(rest, inner), inner, depth + 1)
        return j.Array(tuple(node for node, _ in pairs), node, least, most)

    def _string(
        self, told: dict[str, object], place: str, depth: int, written: dict[str, object]
    ) -> Node:
        least, most = repeats(told, place, "minLength", "maxLength", written)
        ruled = [keyword for keyword in ("pattern", "format") if keyword in told]
        if len(ruled) > 1 or (ruled and (least or most is not None)):
            what = "is not supported beside a length or another of them"
            raise fault(place, what, ruled[-1])
        if "pattern" in told:
            pattern = pattern_of(told["pattern"], place)
            written["pattern"] = pattern.source
            self._states += pattern.states
            if self._states > MAX_STATES:
                what = f"is one of those that stand for more than {MAX_STATES} characters in all"
                raise fault(place, what, "pattern")
            return j.String(pattern=pattern)
        if "format" in told:
            written["format"] = told["format"]
            return j.String(follows=form_of_text(told["format"], place), most_bytes=4 * MAX_REPEATS)
        # A character takes twelve bytes at most: two escapes.
        return j.String(least, most, most_bytes=float("inf") if most is None else 12 * most + 1)

    def _number(
        self, told: dict[str, object], place: str, depth: int, written: dict[str, object]
    ) -> Node:
        bounds = {name: bound(told, name, place, written) for name in BOUND_NAMES}
        lows = [b for name, b in bounds.items() if b is not None and name.endswith("inimum")]
        highs = [b for name, b in bounds.items() if b is not None and name.endswith("aximum")]
        node = j.Number(
            told["type"] == "integer",
            *(bounds[name] for name in BOUND_NAMES),
        )
        if lows and highs and not room(node, max(lows), min(highs)):
            raise fault(place, "leave no number between them", "minimum and maximum")
        return node

    def _integer(
        self, told: dict[str, object], place: str, depth: int, written: dict[str, object]
    ) -> Node:
        return self._number(told | {"type": "integer"}, place, depth, written)

    def _boolean(
        self, told: dict[str, object], place: str, depth: int, written: dict[str, object]
    ) -> Node:
        return j.constants((True, False))

    def _null(
        self, told: dict[str, object], place: str, depth: int, written: dict[str, object]
    ) -> Node:
        return j.constants((None,))

    def _mapping(
        self, schema: Mapping[str, object], keyword: str, place: str
    ) -> Mapping[str, object]:
        value = schema.get(keyword, {})
        if not isinstance(value, dict):
            raise fault(place, "must be an object of schemas", keyword)
        return value


READERS: Mapping[
    str, Callable[[Compiler, dict[str, object], str, int, dict[str, object]], Node]
] = {kind: getattr(Compiler, f"_{kind}") for kind in TYPES}

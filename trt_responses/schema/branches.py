"""Upper bound on a matcher's parallel alternatives for a schema, which determine its cost per byte:
alternatives that begin alike, each of which opens alternatives of its own.

Works on the output of `normalise`; no matcher here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from trt_responses.schema.documents import Document, parts

Schema = dict[str, Any]
Place = tuple[tuple[str, ...], str]
"""The members of an object so far that distinguish alternatives, and the next member's name."""

MOST = 4_096
"""Limit: one byte then takes a millisecond; the time is proportional."""
ANY_NAME = ((), "*")


def most_branches(guide: Schema, check_time: Callable[[], None] = lambda: None) -> int:
    """The maximum of alternatives that one byte can open; the count stops above `MOST`."""
    try:
        return _Branches(guide).most(check_time)
    except RecursionError:  # a chain of references longer than any useful one
        return MOST + 1


class _Branches:
    def __init__(self, guide: Schema) -> None:
        self._document = Document(guide)
        self._known: dict[int, list[Schema]] = {}
        self._opened: dict[int, list[tuple[Place, int]]] = {}

    def most(self, check_time: Callable[[], None]) -> int:
        worst = 0
        waiting: list[Any] = [self._document.root]
        while waiting and worst <= MOST:
            schema = waiting.pop()
            if isinstance(schema, dict):
                waiting += [part for _, part in parts(schema)]
                if "anyOf" in schema:
                    check_time()
                    worst = max(worst, self._most_of(schema))
        return worst

    def _most_of(self, union: Schema) -> int:
        widths: Counter[Place] = Counter()
        for alternative in self._alternatives(union):
            opened = self._opened.get(id(alternative))
            if opened is None:
                opened = self._opened[id(alternative)] = [*self._opens(alternative)]
            for place, width in opened:
                widths[place] += width
        return max(widths.values(), default=0) + widths[ANY_NAME]

    def _opens(self, schema: Schema) -> Iterator[tuple[Place, int]]:
        """The places at which a value of one alternative opens others, and their numbers."""
        constants: tuple[str, ...] = ()
        needed = schema.get("required", ())
        for name, part in schema.get("properties", {}).items():
            yield (constants, name), len(self._alternatives(part))
            if name in needed and isinstance(part, dict) and "enum" in part:
                constants = (*constants, name, orjson.dumps(part["enum"]).decode())
        for part in schema.get("patternProperties", {}).values():
            yield ANY_NAME, len(self._alternatives(part))
        yield ANY_NAME, len(self._alternatives(schema.get("additionalProperties")))
        first = [*schema.get("prefixItems", ()), schema.get("items")][0]
        yield ((), ""), len(self._alternatives(first))

    def _alternatives(self, schema: Any) -> list[Schema]:
        """The alternatives of a schema, through references and unions."""
        if not isinstance(schema, dict):
            return []
        if (alternatives := self._known.get(id(schema))) is None:
            alternatives = self._known[id(schema)] = []  # ends a schema that refers to itself
            if "$ref" in schema:
                alternatives += self._alternatives(self._document.target(schema["$ref"]))
            for part in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
                if len(alternatives) <= MOST:
                    alternatives += self._alternatives(part)
            if "anyOf" not in schema and "$ref" not in schema:
                alternatives.append(schema)
        return alternatives

"""How many readings of a text a schema may keep open at once, which is what a matcher pays for at
one byte: alternatives that begin alike, each of which opens alternatives of its own.

Reads what `normalise` wrote. Knows no matcher.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import orjson

from trt_responses.schema.documents import Document, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Schema = dict[str, Any]
Place = tuple[tuple[str, ...], str]
"""What has been read of an object, as far as it tells alternatives apart, and the member's name."""

MOST = 4_096
"""One byte takes a millisecond with so many, and ten with ten times as many."""
ANY_NAME = ((), "*")


def most_branches(guide: Schema, check_time: Callable[[], None] = lambda: None) -> int:
    """The most readings that any byte may open; counting ends beyond `MOST`."""
    try:
        return _Branches(guide).most(check_time)
    except RecursionError:  # references in a row beyond any use
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
        found: Counter[Place] = Counter()
        for alternative in self._alternatives(union):
            opened = self._opened.get(id(alternative))
            if opened is None:
                opened = self._opened[id(alternative)] = [*self._opens(alternative)]
            for place, width in opened:
                found[place] += width
        return max(found.values(), default=0) + found[ANY_NAME]

    def _opens(self, schema: Schema) -> Iterator[tuple[Place, int]]:
        """Where a value of one alternative opens how many others."""
        told: tuple[str, ...] = ()
        needed = schema.get("required", ())
        for name, part in schema.get("properties", {}).items():
            yield (told, name), len(self._alternatives(part))
            if name in needed and isinstance(part, dict) and "enum" in part:
                told = (*told, name, orjson.dumps(part["enum"]).decode())
        for part in schema.get("patternProperties", {}).values():
            yield ANY_NAME, len(self._alternatives(part))
        yield ANY_NAME, len(self._alternatives(schema.get("additionalProperties")))
        first = [*schema.get("prefixItems", ()), schema.get("items")][0]
        yield ((), ""), len(self._alternatives(first))

    def _alternatives(self, schema: Any) -> list[Schema]:
        """Those that a schema stands for, through references and unions."""
        if not isinstance(schema, dict):
            return []
        if (known := self._known.get(id(schema))) is None:
            known = self._known[id(schema)] = []  # of one that names itself
            if "$ref" in schema:
                known += self._alternatives(self._document.target(schema["$ref"]))
            for part in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
                if len(known) <= MOST:
                    known += self._alternatives(part)
            if "anyOf" not in schema and "$ref" not in schema:
                known.append(schema)
        return known

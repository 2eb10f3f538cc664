"""A schema document: where its references lead. Knows no keyword but those that name places."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

HOLDERS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords that hold schemas by name."""
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
SINGLE = (
    *("items", "additionalProperties", "additionalItems", "propertyNames", "contains"),
    *("not", "if", "then", "else", "unevaluatedProperties", "unevaluatedItems"),
)


def parts(schema: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The schemas that stand right in a schema, each with its place."""
    for keyword in HOLDERS:
        if isinstance(held := schema.get(keyword), dict):
            yield from ((f"{keyword}.{name}", inner) for name, inner in held.items())
    needs = schema.get("dependencies")
    for name, inner in needs.items() if isinstance(needs, dict) else ():
        if not isinstance(inner, list):  # of names
            yield f"dependencies.{name}", inner
    for keyword in LISTS:
        if isinstance(held := schema.get(keyword), list):
            yield from ((f"{keyword}[{n}]", inner) for n, inner in enumerate(held))
    for keyword in SINGLE:
        if isinstance(held := schema.get(keyword), dict):
            yield keyword, held


def deepest(guide: Mapping[str, object]) -> int:
    """How many schemas stand in a row, through references."""
    document = Document(guide)
    inner: dict[int, list[object]] = {}

    def of(schema: object) -> list[object]:
        if not isinstance(schema, dict):
            return []
        if (found := inner.get(id(schema))) is None:
            found = inner[id(schema)] = [
                part for step, part in parts(schema) if not step.startswith("$defs.")
            ]
            if "$ref" in schema:
                found.append(document.target(schema["$ref"]))
        return found

    start: object = guide
    return longest(start, of, id)


def longest(start: T, of: Callable[[T], Sequence[T]], key: Callable[[T], object]) -> int:
    """The most steps in a row for a reader that enters each part once, whether it takes the parts
    in their order or from the last one on."""
    most = 0
    for order in (iter, reversed):
        seen: set[object] = set()
        path: list[Iterator[T]] = [order(of(start))]
        while path:
            most = max(most, len(path))
            part = next(path[-1], None)
            if part is None:
                path.pop()
            elif key(part) not in seen:
                seen.add(key(part))
                path.append(order(of(part)))
    return most


class Document:
    """One schema, and what its `$ref`s mean: pointers, anchors and names of its own parts."""

    def __init__(self, root: Mapping[str, object]) -> None:
        self.root = root
        self._names: dict[str, object] | None = None

    def target(self, reference: object) -> object | None:
        """What a reference means; None where that is not in this document."""
        if not isinstance(reference, str):
            return None
        if reference in ("#", ""):
            return self.root
        if reference.startswith("#/"):
            return self._pointed(reference[2:])
        return self._named().get(reference)

    def _pointed(self, pointer: str) -> object | None:
        found: object = self.root
        for step in pointer.split("/"):
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name[:9]) < len(found):
                found = found[int(name[:9])]
            else:
                return None
        return found if isinstance(found, dict | bool) else None

    def _named(self) -> dict[str, object]:
        if self._names is None:
            self._names = {}
            waiting: list[object] = [self.root]
            while waiting:
                schema = waiting.pop()
                if not isinstance(schema, dict):
                    continue
                for keyword in ("$id", "id", "$anchor"):
                    if isinstance(name := schema.get(keyword), str):
                        self._names.setdefault(f"#{name}" if keyword == "$anchor" else name, schema)
                waiting += [inner for _, inner in parts(schema)]
        return self._names

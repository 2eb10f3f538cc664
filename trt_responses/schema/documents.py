"""A schema document and the targets of its references. It reads structural keywords only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

T = TypeVar("T")

HOLDERS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords with schemas by name."""
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
SINGLE = (
    *("items", "additionalProperties", "additionalItems", "propertyNames", "contains"),
    *("not", "if", "then", "else", "unevaluatedProperties", "unevaluatedItems"),
)


def parts(schema: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The direct subschemas of a schema, each with its place."""
    for keyword in HOLDERS:
        if isinstance(named := schema.get(keyword), dict):
            yield from ((f"{keyword}.{name}", inner) for name, inner in named.items())
    needs = schema.get("dependencies")
    for name, inner in needs.items() if isinstance(needs, dict) else ():
        if not isinstance(inner, list):  # of names
            yield f"dependencies.{name}", inner
    for keyword in LISTS:
        if isinstance(listed := schema.get(keyword), list):
            yield from ((f"{keyword}[{n}]", inner) for n, inner in enumerate(listed))
    for keyword in SINGLE:
        if isinstance(single := schema.get(keyword), dict):
            yield keyword, single


def rebuilt(schema: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The schema with its direct subschemas changed; `dependencies` stay."""
    result = dict(schema)
    for keyword in HOLDERS:
        if isinstance(named := schema.get(keyword), dict):
            result[keyword] = {name: change(part) for name, part in named.items()}
    for keyword in LISTS:
        if isinstance(listed := schema.get(keyword), list):
            result[keyword] = [change(part) for part in listed]
    for keyword in SINGLE:
        if isinstance(single := schema.get(keyword), dict):
            result[keyword] = change(single)
    return result


def deepest(guide: Mapping[str, object]) -> int:
    """The nesting depth of schemas, through references."""
    document = Document(guide)
    inner: dict[int, list[object]] = {}

    def of(schema: object) -> list[object]:
        if not isinstance(schema, dict):
            return []
        if (nested := inner.get(id(schema))) is None:
            nested = inner[id(schema)] = [
                part for step, part in parts(schema) if not step.startswith("$defs.")
            ]
            if "$ref" in schema:
                nested.append(document.target(schema["$ref"]))
        return nested

    start: object = guide
    return longest(start, of, id)


def longest(start: T, of: Callable[[T], Sequence[T]], key: Callable[[T], object]) -> int:
    """The maximum recursion depth of a reader that enters each part once, first part first or last
    part first."""
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
    """One schema, and the targets of its `$ref`s: pointers, anchors and ids of its own parts."""

    def __init__(self, root: Mapping[str, object]) -> None:
        self.root = root
        self._names: dict[str, object] | None = None

    def target(self, reference: object) -> object | None:
        """The target of a reference; None if this document lacks it."""
        if not isinstance(reference, str):
            return None
        if reference in ("#", ""):
            return self.root
        document, mark, pointer = reference.partition("#/")
        if mark:
            at = self._named().get(document) if document else self.root
            return self._pointed(pointer, at)
        return self._named().get(reference.removesuffix("#"))

    def _pointed(self, pointer: str, at: object) -> object | None:
        for step in pointer.split("/"):
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(at, dict) and name in at:
                at = at[name]
            elif isinstance(at, list) and name.isdecimal() and int(name[:9]) < len(at):
                at = at[int(name[:9])]
            else:
                return None
        return at if isinstance(at, dict | bool) else None

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
                        key = f"#{name}" if keyword == "$anchor" else name.removesuffix("#")
                        self._names.setdefault(key, schema)
                waiting += [inner for _, inner in parts(schema)]
        return self._names

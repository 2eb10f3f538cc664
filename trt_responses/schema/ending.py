"""Checks that a schema allows a finite value, and does not require endless nesting."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from trt_responses.schema.documents import Document, parts


def may_end(guide: Mapping[str, Any], check_time: Callable[[], None] = lambda: None) -> bool:
    """Whether a normalised schema allows a finite value. Marks schemas that allow one, until no
    more follow."""
    document = Document(guide)
    everything: list[Mapping[str, Any]] = []
    waiting: list[Mapping[str, Any]] = [guide]
    users: defaultdict[int, list[Mapping[str, Any]]] = defaultdict(list)
    while waiting:
        schema = waiting.pop()
        everything.append(schema)
        nested = [inner for _, inner in parts(schema) if isinstance(inner, dict)]
        waiting += nested
        for used in (*nested, document.target(schema.get("$ref"))):
            users[id(used)].append(schema)
    ending: set[int] = set()
    undecided = deque(reversed(everything))
    queued = set(map(id, everything))
    while undecided:
        check_time()
        schema = undecided.popleft()
        queued.discard(id(schema))
        if _ends(schema, document, ending):
            ending.add(id(schema))
            for user in users[id(schema)]:
                if id(user) not in ending and id(user) not in queued:
                    queued.add(id(user))
                    undecided.append(user)
    return id(guide) in ending


def _ends(schema: Mapping[str, Any], document: Document, ending: set[int]) -> bool:
    def ends(part: object) -> bool:
        return part is True or id(part) in ending

    combined = (
        ("$ref" not in schema or ends(document.target(schema["$ref"])))
        and ("anyOf" not in schema or any(map(ends, schema["anyOf"])))
        and all(map(ends, schema.get("allOf", ())))
    )
    types = schema.get("type", "any")
    kinds = {types} if isinstance(types, str) else set(types)
    if not combined or kinds - {"object", "array"} or "enum" in schema:
        return combined
    listed, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    members = [listed.get(name, rest) for name in schema.get("required", ())]
    first, least = schema.get("prefixItems", []), schema.get("minItems", 0)
    elements = [*first[:least], *[schema.get("items", True)] * (least > len(first))]
    return ("object" in kinds and all(map(ends, members))) or (
        "array" in kinds and all(map(ends, elements))
    )

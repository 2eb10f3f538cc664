"""The Open Responses specification's own schemas, as judges of events and bodies."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

SPECIFICATION = Path(__file__).parents[1] / "data" / "openresponses.openapi.json"
"""The Open Responses specification of 2026-04-24."""


RENAMED = {
    "response.reasoning_text.delta": "response.reasoning.delta",
    "response.reasoning_text.done": "response.reasoning.done",
}


@cache
def schemas() -> tuple[dict[str, Any], Registry[Any]]:
    document = json.loads(SPECIFICATION.read_text())
    resource = Resource.from_contents(document, default_specification=DRAFT202012)
    return document["components"]["schemas"], Registry().with_resource("urn:spec", resource)


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    _, registry = schemas()
    schema = {"$ref": f"urn:spec#/components/schemas/{name}"}
    return jsonschema.Draft202012Validator(schema, registry=registry)


@cache
def schema_of(event_type: str) -> str:
    """The schema of an event, by the one value its `type` may have."""
    found = [
        name
        for name, schema in schemas()[0].items()
        if name.endswith("StreamingEvent")
        and schema["properties"]["type"].get("enum") == [event_type]
    ]
    assert len(found) == 1, event_type
    return found[0]


def check_event(event: dict[str, Any]) -> None:
    validator(schema_of(event["type"])).validate(event)


def check_body(body: dict[str, Any]) -> None:
    validator("ResponseResource").validate(body)

"""Schemas as tools write them: only what those tools printed is kept in the collections.

TypeScript: zod 4.6 (raw, through openai-node 6.49, as draft 7), TypeBox 0.34, Valibot 1.5 and
ArkType 2.2. Others: the AI SDK 6, MCP's own servers, langchain-core 1.7, the Agents SDK 0.24,
pydantic 2.14 (raw and through openai 3.54), FastAPI 0.165; and the parts of an OpenAPI document.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.schemas import form, verdict
from trt_responses.schema.refusals import InvalidSchema

DATA = Path(__file__).parents[2] / "data"
REFUSED = {"emoji", "u8", "not"}
"""A lookahead without a format, a type that is none, and a keyword that no guide can follow."""


def refused(cases: list[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for case in cases:
        try:
            form(case["schema"])
        except InvalidSchema:
            found[case["name"]] += 1
    return found


def test_schemas_that_typescript_tools_write_are_taken() -> None:
    cases = json.loads((DATA / "schemas" / "typescript.json").read_text())
    assert refused(cases).keys() == REFUSED


def test_schemas_that_other_tools_write_are_taken() -> None:
    cases = json.loads((DATA / "schemas" / "tools.json").read_text())
    groups = Counter(case["group"] for case in cases)
    assert groups.keys() == {
        *("ai-sdk", "mcp", "langchain", "openai-agents"),
        *("pydantic", "pydantic openai", "openapi fastapi"),
    }
    assert not refused(cases)


def test_the_components_of_an_openapi_document_are_taken() -> None:
    text = (DATA / "openresponses.openapi.json").read_text()
    parts = json.loads(text.replace("#/components/schemas/", "#/$defs/"))["components"]["schemas"]
    cases = [
        {"name": name, "schema": {"$ref": f"#/$defs/{name}", "$defs": parts}} for name in parts
    ]
    assert len(cases) > 100
    assert len(refused(cases)) <= 0.05 * len(cases)


def text() -> dict[str, Any]:
    return {"type": "string"}


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def nested(levels: int) -> dict[str, Any]:
    return closed({"a": nested(levels - 1)} if levels > 1 else {"a": text()})


# OpenAI's documented limits: 5,000 properties and 10 levels in all, 120,000 characters in names and
# values, 1,000 values of enums, 15,000 characters of one enum beyond 250 values.
LIMITS = {
    "properties": closed(
        {f"p{n}": closed({f"q{m}": text() for m in range(99)}) for n in range(50)}
    ),
    "levels": nested(10),
    "characters": closed({f"{n:x<119}": text() for n in range(1_000)}),
    "values": closed({"a": {"type": "string", "enum": [f"value {n}" for n in range(1_000)]}}),
    "long values": closed({"a": {"type": "string", "enum": [f"{n:x<60}" for n in range(250)]}}),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_schema_at_openais_limits_is_taken(limit: str) -> None:
    found = form(LIMITS[limit])
    assert verdict(found, "{}") == "departed"


def test_a_schema_at_openais_limits_can_be_fulfilled() -> None:
    value = {f"p{n}": {f"q{m}": "x" for m in range(99)} for n in range(50)}
    assert (
        verdict(form(LIMITS["properties"]), json.dumps(value, separators=(",", ":"))) == "followed"
    )

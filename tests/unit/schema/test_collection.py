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
REFUSED = {
    "zod raw": {"emoji"},
    "zod draft-7": {"emoji"},
    "zod openai": {"emoji"},
    "typebox": {"u8", "not"},
}
"""A lookahead without a format, a type that is none, and a keyword that no guide can follow."""
BY_RULE = {"u8", "not"}
"""What is no JSON Schema, and what `strict` refuses by its name: they count in no share."""
LEAST = 0.95
"""Of what each tool writes."""
WHOLE = {
    *("ai-sdk", "langchain", "mcp", "openai-agents", "openapi fastapi"),
    *("pydantic", "pydantic openai", "typebox", "valibot", "arktype"),
}
"""Tools of which every schema is taken."""


def cases_of(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((DATA / "schemas" / f"{name}.json").read_text())
    return cases


def components() -> list[dict[str, Any]]:
    """The parts of an OpenAPI document, each as a schema that refers to the others."""
    text = (DATA / "openresponses.openapi.json").read_text()
    parts = json.loads(text.replace("#/components/schemas/", "#/$defs/"))["components"]["schemas"]
    return [
        {"group": "openapi", "name": name, "schema": {"$ref": f"#/$defs/{name}", "$defs": parts}}
        for name in parts
    ]


def is_taken(case: dict[str, Any]) -> bool:
    try:
        form(case["schema"])
    except InvalidSchema:
        return False
    return True


def test_of_the_schemas_of_each_tool_nearly_all_are_taken_and_the_rest_is_known() -> None:
    cases = [*cases_of("typescript"), *cases_of("tools"), *components()]
    refused = [case for case in cases if not is_taken(case)]
    for group, names in REFUSED.items():
        assert {case["name"] for case in refused if case["group"] == group} == names
    written = Counter(case["group"] for case in cases if case["name"] not in BY_RULE)
    counts = Counter(case["group"] for case in refused if case["name"] not in BY_RULE)
    shares = {group: 1 - counts[group] / count for group, count in written.items()}
    assert shares.keys() == WHOLE | {"zod raw", "zod openai", "zod draft-7", "openapi"}
    assert written["openapi"] > 100
    for group, share in shares.items():
        assert share == 1 if group in WHOLE else share >= LEAST, (group, share)


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

"""Schemas as tools of TypeScript write them: zod 4.6 (raw, through openai-node 6.49, as draft 7),
TypeBox 0.34, Valibot 1.5 and ArkType 2.2. Only what those tools printed is kept here."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.support.schemas import form
from trt_responses.schema.refusals import InvalidSchema

COLLECTION = Path(__file__).parents[2] / "data" / "schemas" / "typescript.json"
REFUSED = {"emoji", "u8", "not"}
"""A lookahead without a format, a type that is none, and a keyword that no guide can follow."""


def test_schemas_that_tools_write_are_taken() -> None:
    refused: Counter[str] = Counter()
    for case in json.loads(COLLECTION.read_text()):
        try:
            form(case["schema"])
        except InvalidSchema:
            refused[case["name"]] += 1
    assert refused.keys() == REFUSED

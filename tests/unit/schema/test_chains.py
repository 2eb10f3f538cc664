"""Schemas that lead through many others: what it takes to read them grows with their size alone."""

from __future__ import annotations

from typing import Any

import pytest

from trt_responses.schema.compile import MAX_LEVELS, Forms
from trt_responses.schema.documents import deepest
from trt_responses.schema.ending import may_end
from trt_responses.schema.refusals import InvalidSchema

LONG = 600


def chain(length: int) -> dict[str, Any]:
    """An object whose member leads through so many references."""
    links: dict[str, Any] = {f"n{i}": {"$ref": f"#/$defs/n{i + 1}"} for i in range(length)}
    return {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n0"}},
        "required": ["a"],
        "additionalProperties": False,
        "$defs": links | {f"n{length}": {"type": "integer"}},
    }


def test_a_chain_beyond_any_guide_is_refused_with_its_length() -> None:
    assert deepest(chain(LONG)) > MAX_LEVELS > deepest(chain(100))
    with pytest.raises(InvalidSchema, match=f"nests schemas deeper than {MAX_LEVELS} levels"):
        Forms().form(chain(LONG), "text.format.schema", strict=True)
    Forms().form(chain(100), "text.format.schema", strict=True)


def test_whether_a_value_ends_is_decided_in_a_few_looks_at_each_schema() -> None:
    looks: list[None] = []
    assert may_end(chain(LONG), lambda: looks.append(None))
    assert LONG < len(looks) < 4 * LONG


@pytest.mark.parametrize("backwards", [False, True])
def test_a_grammar_of_many_rules_in_a_row_is_refused_before_it_is_read(backwards: bool) -> None:
    """Three thousand of them end the process that reads them."""
    rules = [f'r{n}: "a" r{n + 1} "b"?' for n in range(2_800)]
    lines = ["start: r0", *rules, 'r2800: "a" // r0']
    with pytest.raises(InvalidSchema, match=f"nests rules too deep: .* limit {MAX_LEVELS}"):
        Forms().lark("\n".join(lines[::-1] if backwards else lines), "tools[0].format.definition")


def test_rules_beside_each_other_and_within_themselves_are_no_row() -> None:
    beside = " ".join(f"r{n}" for n in range(MAX_LEVELS + 100))
    rules = "\n".join(f'r{n}: "{n}" | "(" r{n} ")"' for n in range(MAX_LEVELS + 100))
    Forms().lark(f"start: {beside}\n{rules}", "tools[0].format.definition")

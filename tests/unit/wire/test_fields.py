"""The table of fields: it is whole, and each row does what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trt_responses.errors import InvalidRequest, Unsupported
from trt_responses.wire.fields import FIELDS, OPTIONS
from trt_responses.wire.judge import NESTED, TABLE, Field
from trt_responses.wire.judge import judge as judged
from trt_responses.wire.parse import parse
from trt_responses.wire.request import Request
from trt_responses.wire.tools import flat

TOOL = {"type": "function", "name": "f"}

UNUSUAL: dict[str, Any] = {
    "model": "m",
    "input": "hi",
    "instructions": "x",
    "stream": True,
    "store": False,
    "previous_response_id": "resp_1",
    "max_output_tokens": 5,
    "temperature": 0.5,
    "top_p": 0.5,
    "frequency_penalty": 1,
    "presence_penalty": 1,
    "tools": [TOOL],
    "reasoning.effort": "high",
    "reasoning.summary": "auto",
    "reasoning.max_tokens": 100,
    "reasoning.generate_summary": "auto",
    "top_k": 5,
    "min_p": 0.5,
    "seed": 5,
    "metadata": {"k": "v"},
    "safety_identifier": "x",
    "prompt_cache_key": "x",
    "service_tier": "flex",
    "max_tool_calls": 3,
    "parallel_tool_calls": True,
    "text.verbosity": "low",
    "text.format": {"type": "json_object"},
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "stream_options.include_obfuscation": True,
    "prompt_cache_retention": "24h",
    "prompt_cache_options.comparison_response_id": "resp_1",
    "prompt_cache_options.mode": "x",
    "prompt_cache_options.prewarm": True,
    "prompt_cache_options.ttl": "30m",
    "background_options": {"completion_window": "soonest"},
    "reasoning.mode": "pro",
    "reasoning.context": "all_turns",
    "access_programs": ["x"],
    "moderation": {"policy": "x"},
    "image": {"size": "x"},
    "user": "me",
    "background": True,
    "conversation": "conv_1",
    "prompt": {"id": "p"},
    "context_management": [{"type": "compaction"}],
    "top_logprobs": 2,
    "tool_choice": "required",
    "truncation": "auto",
}
"""A value for each row that asks for something else than the default."""


def request(path: str, value: Any) -> Request:
    name, _, inner = path.partition(".")
    beside = {"include": ["message.output_text.logprobs"]} if path == "top_logprobs" else {}
    fields = {name: {inner: value} if inner else value}
    return parse(json.dumps({"model": "m", "input": "hi"} | beside | fields).encode())


def judge(wanted: Request) -> list[str]:
    return list(judged(wanted, list(flat(wanted.tools or ()))))


def test_every_field_that_is_parsed_has_its_row_and_no_row_stands_twice() -> None:
    rows = {path.partition(".")[0] for path in TABLE}
    assert set(Request.model_fields) <= rows
    assert len(TABLE) == len(FIELDS)
    for name in NESTED:
        assert name in Request.model_fields


def test_every_row_has_a_value_that_tries_it() -> None:
    assert UNUSUAL.keys() == {field.path for field in OPTIONS}


@pytest.mark.parametrize("field", OPTIONS, ids=lambda field: field.path)
def test_a_row_does_what_it_says(field: Field) -> None:
    wanted = request(field.path, UNUSUAL[field.path])
    if field.treatment == "refused":
        with pytest.raises(Unsupported, match=f"'{field.path}'") as caught:
            judge(wanted)
        assert caught.value.param == field.path
        assert field.note in caught.value.message
    else:
        assert judge(wanted) == ([field.path] if field.treatment == "ignored" else [])


@pytest.mark.parametrize("field", OPTIONS, ids=lambda field: field.path)
def test_null_is_neither_named_nor_refused(field: Field) -> None:
    if field.path not in ("model", "input"):
        assert judge(request(field.path, None)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *[("background", False), ("top_logprobs", 0), ("tool_choice", "auto")],
        *[("truncation", "disabled"), ("text.format", {"type": "text"}), ("include", [])],
        *[("text.format", {}), ("context_management", []), ("tools", [])],
    ],
)
def test_a_value_that_asks_for_what_happens_anyway_is_taken(path: str, value: Any) -> None:
    assert judge(request(path, value)) == []


def test_unknown_fields_are_named_at_their_place() -> None:
    assert judge(request("zzz", 1)) == ["zzz"]
    assert judge(request("reasoning.zzz", 1)) == ["reasoning.zzz"]
    assert judge(request("model_extra", {"background": True})) == ["model_extra"]


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([{"type": "web_search"}], "tools[0].type"),
        ([TOOL, {"type": "function", "name": "g"}, TOOL], "tools[2].name"),
        ([TOOL | {"parameters": {"maximum": 2**64}}], "tools[0].parameters"),
        ([TOOL | {"extra": 2**64}], "tools[0]"),
    ],
)
def test_tools_that_cannot_be_offered_are_refused_by_name(tools: list[Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        judge(request("tools", tools))
    assert caught.value.param == param

"""Requests that differ in their input alone are read once: what they ask for is the same value."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from tests.support.sampled import sampled
from trt_responses.accept.responses import accept
from trt_responses.errors import InvalidRequest
from trt_responses.features.open_responses.install import OPEN_RESPONSES
from trt_responses.features.shapes.shapes import ENTRY_BYTES, ResponseShape, Shapes
from trt_responses.wire.dialect import OPENAI, Dialect
from trt_responses.wire.limits import RequestLimits
from trt_responses.wire.parse import parse

TOOL = {"type": "function", "name": "tide", "parameters": {"type": "object", "properties": {}}}
MESSAGE = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
EFFORT = {"type": "configuration_update", "reasoning": {"effort": "high"}}
MORE_TOOLS = {"type": "additional_tools", "role": "developer", "tools": [TOOL | {"name": "wind"}]}
TRIGGER = {"type": "compaction_trigger"}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "demo", "input": "Hello"} | fields).encode()


def read(known: Shapes, sent: bytes, dialect: Dialect = OPENAI) -> ResponseShape:
    reading = known.steps(sent, dialect)
    while True:
        try:
            next(reading)
        except StopIteration as end:
            shape: ResponseShape = end.value
            return shape


@pytest.fixture
def known() -> Shapes:
    return Shapes(RequestLimits(input=3), {})


REQUESTS: list[dict[str, Any]] = [
    {},
    {"input": [MESSAGE]},
    {"input": []},
    {"input": [MESSAGE, EFFORT]},
    {"input": [MORE_TOOLS, MESSAGE]},
    {"input": [MESSAGE, TRIGGER]},
    {"previous_response_id": "resp_1"},
    {"previous_response_id": ""},
    {"tools": [TOOL], "tool_choice": "required"},
    {"tools": [TOOL], "input": [MORE_TOOLS, MESSAGE]},
    {"tools": []},
    {"stream": True, "temperature": 1, "metadata": {"a": "b"}, "unknown": [1, 1.0, True]},
]


@pytest.mark.parametrize("first", REQUESTS, ids=json.dumps)
@pytest.mark.parametrize("then", REQUESTS, ids=json.dumps)
def test_a_request_is_read_the_same_whatever_came_before(
    known: Shapes, first: dict[str, Any], then: dict[str, Any]
) -> None:
    for _ in range(3):
        read(known, body(**first))
    for _ in range(3):
        shape = read(known, body(**then))
        assert shape.accepted == accept(parse(body(**then)))
        assert shape.stream == then.get("stream", False)


def test_another_input_is_all_that_is_read_anew(known: Shapes) -> None:
    one, two = read(known, body(user="u")), read(known, body(user="u", input="Bye"))
    assert (one.accepted.input, two.accepted.input) == ("Hello", "Bye")
    assert two.accepted.echo is one.accepted.echo


def test_what_is_continued_is_each_request_s_own(known: Shapes) -> None:
    for name in ("resp_1", "resp_2"):
        accepted = read(known, body(previous_response_id=name)).accepted
        assert accepted.previous_response_id == accepted.echo.previous_response_id == name


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 1}, "input"),
        ({"input": [MESSAGE] * 4}, "input"),
        ({"input": [{"type": "message", "role": "nobody", "content": ""}]}, "input[0].role"),
        ({"previous_response_id": 1}, "previous_response_id"),
        ({"tools": ""}, "tools"),
        ({"tools": 0}, "tools"),
        ({"tools": {}}, "tools"),
    ],
)
def test_a_known_request_with_another_input_is_refused_by_its_place(
    known: Shapes, fields: dict[str, Any], param: str
) -> None:
    for usual in (body(), body(tools=[]), body(tools=None)):
        read(known, usual)
    with pytest.raises(InvalidRequest) as refused:
        read(known, body(**fields))
    assert refused.value.param == param


def test_a_dialect_refuses_what_another_takes(known: Shapes) -> None:
    sent = body(reasoning={"effort": "max"})
    read(known, sent)
    with pytest.raises(InvalidRequest):
        read(known, sent, OPEN_RESPONSES)


def test_tools_with_secrets_are_not_kept() -> None:
    server = {"type": "mcp", "server_label": "s", "server_url": "https://a.b"}
    known = Shapes(RequestLimits(), {"mcp": ("mcp",)})
    sent = body(tools=[server | {"headers": {"k": "v"}}, TOOL])
    one, two = read(known, sent), read(known, sent)
    assert one.accepted.echo is not two.accepted.echo


def test_unknown_fields_are_not_kept(known: Shapes) -> None:
    one, two = (read(known, body(api_key="hush", user="u")) for _ in range(2))
    assert one.accepted.echo is two.accepted.echo
    assert "hush" not in repr(vars(known))


def test_the_longest_unused_are_forgotten() -> None:
    known = Shapes(RequestLimits(), {}, known_bytes=3 * (ENTRY_BYTES + 3000))
    kept = read(known, body(user="0"))
    for name in ("1", "0", "2"):
        found = read(known, body(user=name))
    assert read(known, body(user="2")).accepted.echo is found.accepted.echo
    assert read(known, body(user="0")).accepted.echo is kept.accepted.echo
    for name in ("3", "4", "5"):
        read(known, body(user=name))
    assert read(known, body(user="0")).accepted.echo is not kept.accepted.echo


def schema(enum: list[Any]) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "name": "x", "schema": {"enum": enum}}}


@sampled(
    "fields",
    [
        {"text": schema([{}] * 2000)},
        {"text": schema([{"a": 1}] * 2000)},
        {"text": schema([[[]]] * 2000)},
        {"text": schema([f"{number:x}" for number in range(256, 2256)])},
        {"text": schema([*range(300, 2300)])},
        {"instructions": "a" * 40_000 + "\N{GRINNING FACE}"},
        {"metadata": {str(number): "v" for number in range(16)}},
        {"tool_choice": {"type": "function", "name": "tide"}, "tools": [TOOL]},
        {"tools": [TOOL | {"parameters": {"enum": [{}] * 2000}}]},
    ],
    ids=map(str, range(9)),
)  # 2 s: under tracemalloc
def test_memory_is_bounded_whatever_the_fields_are(fields: dict[str, Any]) -> None:
    known_bytes = 1 << 20
    read(Shapes(RequestLimits(), {}), body(**fields))
    known = Shapes(RequestLimits(), {}, known_bytes)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(40):
            read(known, body(user=str(number), **fields))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1.2 * known_bytes

"""Malformed and contradictory items, tools and options: each refused at its place, before a token.

The plainer half of the table is in test_bad_input.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.bad_bodies import INVALID, MISSING, Row, bad, body, item, raw, tool
from tests.support.replies import check_headers
from tests.support.served import WEATHER, served
from trt_responses.wire.limits import RequestLimits

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
CUSTOM_CALL = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}
CUSTOM = {"type": "custom", "name": "c"}
SPACE = {"type": "namespace", "name": "n", "tools": [WEATHER]}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: x"}
MCP = {"type": "mcp_call", "server_label": "s", "name": "f", "arguments": "{}"}
ODD_FORMATS: list[Any] = [5, "text", [], {"type": "x"}]
REFUSED_ITEMS = [
    *("file_search_call", "computer_call", "computer_call_output", "image_generation_call"),
    *("Message", "", " message"),
]
HOSTED = [
    *("web_search", "web_search_preview", "file_search", "computer_use_preview"),
    *("code_interpreter", "image_generation"),
    *("programmatic_tool_calling", "zzz"),
]


def less(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if key not in names}


def content(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def deep_format() -> bytes:
    """A schema that is nested too deep to be shown. It comes with no tools, so none is named."""
    schema: dict[str, Any] = {}
    for _ in range(61):
        schema = {"items": schema}
    return body(text={"format": {"type": "json_schema", "name": "x", "schema": schema}})


ITEMS: list[Row] = [
    *[item("[1]", USER, {"type": kind, "id": "x"}) for kind in REFUSED_ITEMS],
    *[
        item(f"[0].{name}", less(CUSTOM_CALL, name), code=MISSING)
        for name in ("call_id", "name", "input")
    ],
    *[item(f"[0].{name}", CUSTOM_CALL | {name: 5}) for name in ("call_id", "name", "input")],
    *[item(f"[0].{name}", CUSTOM_CALL | {name: ""}) for name in ("call_id", "name")],
    item("[0].namespace", CALL | {"namespace": 5}),
    item("[0].call_id", CALL | {"call_id": None}),
    item("[0].status", CALL | {"status": "done"}),
    item("[0].output", {"type": "custom_tool_call_output", "call_id": "c"}, code=MISSING),
    item("[1].output", CALL, {"type": "function_call_output", "call_id": "c"}, code=MISSING),
    item("[1].output", CALL, {"type": "function_call_output", "call_id": "c", "output": None}),
    item(
        "[1].output[0]",
        CALL,
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "zzz"}]},
    ),
    item(
        "[1].output[1].text",
        CALL,
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "x"}, {"type": "input_text", "text": 1}],
        },
    ),
    item(
        "[1].output[0]",
        CALL,
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image"}]},
        code="unsupported_content",
    ),
    item(
        "[0].call_id",
        {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
        code="unknown_call_id",
    ),
    item(
        "[1].call_id",
        USER,
        {"type": "shell_call_output", "call_id": "c", "output": []},
        code="unknown_call_id",
    ),
    *[
        item(f"[0].{name}", less(MCP, name), code=MISSING)
        for name in ("server_label", "name", "arguments")
    ],
    item("[0].arguments", MCP | {"arguments": {}}),
    item("[0].output", MCP | {"output": 5}),
    item("[0].tools", {"type": "mcp_list_tools", "server_label": "s"}, code=MISSING),
    item("[0].tools[0]", {"type": "mcp_list_tools", "server_label": "s", "tools": [5]}),
    item(
        "[0].approve",
        {"type": "mcp_approval_response", "approval_request_id": "m", "approve": "yes"},
    ),
    item("[0].action", {"type": "web_search_call", "action": "search"}),
    item("[0].outputs", {"type": "code_interpreter_call", "outputs": {}}),
    item("[0].action", {"type": "shell_call", "call_id": "c"}, code=MISSING),
    item("[0].action", {"type": "local_shell_call", "call_id": "c", "action": []}),
    item("[0].operation", {"type": "apply_patch_call", "call_id": "c"}, code=MISSING),
    item("[0].content[0]", content({"type": "input_image"}), code="unsupported_content"),
    item(
        "[1].content[1]",
        USER,
        content({"type": "input_text", "text": "x"}, {"type": "input_file", "file_id": "f"}),
        code="unsupported_content",
    ),
    item("[0].content[0]", content({"type": "input_audio"}), code="unsupported_content"),
    item("[0].content[0]", content({"type": "reasoning_text", "text": "x"})),
    item("[0].content[0]", content({"type": None, "text": "x"})),
    item("[0].content[0].refusal", content({"type": "refusal"}), code=MISSING),
    item("[0].content[0]", content([])),
    item("[0].role", {"type": "message", "role": "critic", "content": "x"}),
    item("[0].content", {"type": "message", "role": "user", "content": 0}),
    item("[0].phase", {"role": "assistant", "content": "x", "phase": "analysis"}),
    item(
        "[0].summary[0].text",
        {"type": "reasoning", "summary": [{"type": "summary_text"}]},
        code=MISSING,
    ),
    item("[0].summary[0].type", {"type": "reasoning", "summary": [{"type": "text", "text": "x"}]}),
    item("[0].content", {"type": "reasoning", "summary": [], "content": "x"}),
    item("[0].encrypted_content", {"type": "reasoning", "summary": [], "encrypted_content": 5}),
    item("[0].id", {"type": "item_reference", "id": ""}),
    item("[0].id", {"type": "item_reference"}, code=MISSING),
    (
        body(input=[{"type": "item_reference", "id": "msg_nothing"}]),
        404,
        "input[0].id",
        "item_not_found",
    ),
]
TOOLS: list[Row] = [
    *[tool("[0].type", {"type": kind}, code="unsupported_tool") for kind in HOSTED],
    tool("[0].type", *[{"type": kind} for kind in HOSTED], code="unsupported_tool"),
    tool("[1].type", WEATHER, {"type": None}),
    tool("[0].type", {"type": ["function"]}),
    tool("[0].name", less(CUSTOM, "name"), code=MISSING),
    *[
        tool("[0].name", CUSTOM | {"name": name})
        for name in ("", "a b", "a.b", "<|call|>", "x" * 65, 5, None)
    ],
    tool("[0].description", CUSTOM | {"description": []}),
    *[tool("[0].format", CUSTOM | {"format": value}) for value in ODD_FORMATS],
    *[
        tool(f"[0].format.{name}", CUSTOM | {"format": less(GRAMMAR, name)}, code=MISSING)
        for name in ("syntax", "definition")
    ],
    tool("[0].format.syntax", CUSTOM | {"format": GRAMMAR | {"syntax": "ebnf"}}),
    tool("[0].format.definition", CUSTOM | {"format": GRAMMAR | {"definition": None}}),
    tool("[0].tools", less(SPACE, "tools"), code=MISSING),
    tool("[0].name", less(SPACE, "name"), code=MISSING),
    tool("[0].tools", SPACE | {"tools": {}}),
    tool("[0].tools[0]", SPACE | {"tools": [5]}),
    tool("[0].tools[1]", SPACE | {"tools": [WEATHER, SPACE]}),
    tool("[0].tools[0]", SPACE | {"tools": [{"type": "web_search"}]}),
    tool("[0].tools[0].name", SPACE | {"tools": [{"type": "custom"}]}, code=MISSING),
    tool("[0].tools[0].parameters", SPACE | {"tools": [WEATHER | {"parameters": []}]}),
    tool("[0].tools[1].name", SPACE | {"tools": [WEATHER, WEATHER]}),
    tool("[0].type", SPACE | {"tools": []}, code="unsupported_tool"),
    tool("[1].tools[0].name", WEATHER | {"name": "n__weather"}, SPACE),
    tool("[1].name", WEATHER, CUSTOM | {"name": "weather"}),
    tool("[0]", CUSTOM | {"extra": 10**30}),
    tool("[0]", SPACE | {"extra": [10**30]}),
    tool("[0].tools[0]", SPACE | {"tools": [WEATHER | {"extra": 10**30}]}),
]
OPTIONS: list[Row] = [
    *[bad("top_logprobs", top_logprobs=value) for value in (-1, 21, 1.5, "3", True)],
    bad("include[0]", include=[None]),
    bad("moderation", "unsupported_parameter", moderation={"policy": {}}),
    bad("image", "unsupported_parameter", image={"size": "1x1"}),
    bad("reasoning.context", "unsupported_parameter", reasoning={"context": "all_turns"}),
    bad("tool_choice.name", tool_choice={"type": "custom", "name": "zzz"}, tools=[CUSTOM]),
    bad("tool_choice.name", tool_choice={"type": "function", "name": "c"}, tools=[CUSTOM]),
    bad("tool_choice.name", tool_choice={"type": "function", "name": "weather"}, tools=[SPACE]),
    *[
        bad("tool_choice", tool_choice={"type": kind, "name": "x"}, tools=[WEATHER])
        for kind in ("file_search", "zzz")
    ],
    bad(
        "tool_choice.server_label",
        tool_choice={"type": "mcp", "server_label": "s"},
        tools=[WEATHER],
    ),
    bad("tools[0].type", "unsupported_tool", tools=[{"type": "mcp", "server_label": "s"}]),
    bad("tools[0].server_label", tools=[{"type": "mcp", "server_label": "a b"}, WEATHER]),
    bad("metadata", metadata={str(n): "" for n in range(17)}),
    (deep_format(), 400, None, None),
    (raw(b'"metadata": {"a": "\\ud800"}'), 400, None, "invalid_json"),
    (raw(b'"include": ["\\udfff"]'), 400, None, "invalid_json"),
    (raw(b'"input": [' * 3000 + b"]" * 3000), 400, None, "invalid_json"),
    (raw(b'"tools": ' + b"[" * 5000 + b"]" * 5000), 400, None, "invalid_json"),
    (raw(b'"top_logprobs": 1e400'), 400, "top_logprobs", INVALID),
    (raw(b'"top_logprobs": ' + b"1" * 400), 400, "top_logprobs", INVALID),
    (raw(b'"max_output_tokens": 1e3'), 400, "max_output_tokens", INVALID),
    (raw(b'"temperature": 1, "temperature": 9'), 400, "temperature", INVALID),
]
TABLE = [*ITEMS, *TOOLS, *OPTIONS]


def test_each_is_refused_by_name_and_no_token_is_made() -> None:
    """Budget: 2 s; some 130 rows on one app."""
    assert len(TABLE) >= 120

    async def story() -> None:
        async with served() as s:
            for data, *expected in TABLE:
                call = await s.client.send("POST", "/v1/responses", data)
                assert call.status != 200, data[:300]
                told = [call.status, call.error["param"], call.error["code"]]
                assert told == expected, (data[:300], call.body[:300])
                check_headers(call)
                assert call.error["type"] == "invalid_request_error"
                assert len(call.body) < 1500
                assert "pydantic" not in call.error["message"]
                assert " instance of " not in call.error["message"]
            assert not s.engine.requests

    asyncio.run(story())


def test_a_history_that_is_too_long_meets_the_bound_of_items_and_not_that_of_values() -> None:
    """At the defaults, with items as agents send them."""
    part = {"type": "input_text", "text": "Go on."}
    turn = [
        {"role": "user", "content": [part]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "c", "output": "done"},
    ]
    most = RequestLimits().input
    items = (turn * (most // len(turn) + 1))[: most + 1]

    async def story() -> None:
        async with served() as s:
            call = await s.client.create(input=items)
            assert (call.status, call.error["param"]) == (400, "input")
            assert call.error["code"] == "too_many_entries"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("setting", "param", "most", "over"),
    [
        ("max_tools", "tools", [WEATHER], [WEATHER, CUSTOM]),
        ("max_tools", "tools", [SPACE], [SPACE, CUSTOM]),
        ("max_tools", "tools", [CUSTOM], [CUSTOM, {"type": "web_search"}]),
        ("max_input", "input", [USER], [USER, USER]),
    ],
)
def test_one_request_holds_so_many_entries_and_no_more(
    setting: str, param: str, most: Any, over: Any
) -> None:
    async def story() -> None:
        bounds: dict[str, Any] = {setting: 1}
        async with served(**bounds) as s:
            assert (await s.client.create(**{param: most})).status == 200
            call = await s.client.create(**{param: over})
            told = (call.status, call.error["param"], call.error["code"])
            assert told == (400, param, "too_many_entries")
            assert "1 entries at most, got 2" in call.error["message"]

    asyncio.run(story())


@pytest.mark.early(90)  # MB: a process has little yet
def test_the_largest_lists_are_answered_or_refused_in_time_and_never_break() -> None:
    """Budget: 6 s. Ten thousand items of other kinds, a thousand tools, ten megabytes in one."""

    async def story() -> None:
        async with served(context_tokens=1_000_000, max_body_bytes=16 << 20) as s:
            pairs = [
                part
                for n in range(5000)
                for part in (
                    CUSTOM_CALL | {"call_id": f"c{n}"},
                    {"type": "custom_tool_call_output", "call_id": f"c{n}", "output": "x"},
                )
            ]
            assert (await s.client.create(input=pairs)).status == 200
            many = [CUSTOM | {"name": f"c{n}"} for n in range(1024)]
            assert (await s.client.create(tools=many)).status == 200
            assert (await s.client.create(tools=[*many, CUSTOM])).status == 400
            text = "lorem ipsum " * 850_000
            for sent in (
                {"input": [CUSTOM_CALL | {"input": text}]},
                {"tools": [CUSTOM | {"format": GRAMMAR | {"definition": text}}]},
                {"input": [USER, MCP | {"output": text}]},
            ):
                call = await s.client.create(**sent)
                assert (call.status, call.error["code"]) == (400, "context_length_exceeded")

    asyncio.run(story())

"""Whatever a client sends, it hears what was expected: a 4xx by name, and never a fault of ours."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.asgi import JSON, asked
from tests.support.bad_bodies import (
    INVALID,
    MISSING,
    UNSUPPORTED,
    Row,
    bad,
    body,
    each,
    gone,
    item,
    nested,
    raw,
    tool,
    without,
    wrong,
)
from tests.support.replies import check_headers
from tests.support.sampled import sampled
from tests.support.served import served

F = {"type": "function", "name": "f"}
USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
IMAGE = {"type": "input_image", "image_url": "data:x"}


ROLES: list[Any] = ["tool", "User", 5, None]
VALUES_OF_NO_TEXT: list[Any] = [5, None, {}, True]
NO_SCHEMAS: list[Any] = [[], "{}", 5]
NAMES_OF_NO_TOOL: list[Any] = ["", "a b", "a.b", "a\n", "é", "<|end|>", "x" * 65, 5, None]


NOT_JSON: list[Row] = [
    (data, 400, None, "invalid_json")
    for data in (
        *(
            b"",
            b" ",
            b"{",
            b'{"model":',
            b"model=demo&input=hi",
            b"{'model': 'demo'}",
            b"undefined",
        ),
        *(body() + b"x", body() * 2, b"// hi\n" + body(), b"[" * 40_000, b'{"a":' * 5000),
        *(body().decode().encode("utf-16"), b"\xef\xbb\xbf" + body(), b"\xff\xfe", b"\x00"),
        *(raw(b'"user": "caf\xe9"'), raw(b'"user": "\xed\xa0\x80"'), raw(b'"user": "a\x00b"')),
        *(raw(b'"user": "\\ud800"'), raw(b'"\\udc00": 1'), raw(b'"user": "\\x41"'), raw(b"5: 1")),
        *(
            raw(b'"seed": ' + b"9" * 5000),
            raw(b'"seed": 01'),
            raw(b'"seed": +1'),
            raw(b'"seed": 0x1'),
        ),
    )
]
NOT_AN_OBJECT: list[Row] = [
    (data, 400, None, INVALID) for data in (b"null", b"[]", b'"hi"', b"5", b"true", b"NaN")
]
TYPES: list[Row] = [
    (b"{}", 400, "input", MISSING),
    (without("input"), 400, "input", MISSING),
    (body(model="gpt-5"), 404, "model", "model_not_found"),
    (body(model="m" * 100_000), 404, "model", "model_not_found"),
    (body(model="DEMO"), 404, "model", "model_not_found"),
    *wrong("model", None, "", 5, [], {}, True),
    *wrong("input", None, "", [], 5, {}, True, 1.5),
    *wrong("stream", 1, "true", [], {}),
    *wrong("store", 0, "no"),
    *wrong("temperature", -0.1, 2.1, "1", True, [], 1e300),
    *wrong("top_p", 0, 1.01, -1, "0.5", True),
    *wrong("min_p", -0.1, 1.1),
    *wrong("top_k", -1, 1.5, 2**31, 10**30),
    *wrong("seed", -1, 2**32, 1.0, "1"),
    *wrong("max_output_tokens", 0, -1, 1.5, 1.0, "9", True, [], 2**53, 10**30),
    *wrong("max_tool_calls", 0, 10**30),
    *wrong("presence_penalty", 2.1, -2.1, "0"),
    *wrong("frequency_penalty", 2.1, "0"),
    *wrong("instructions", 5, [], {}),
    *wrong("include", "x", {}, 5),
    bad("include[1]", include=["a", 5]),
    *wrong("metadata", [], "x", {str(n): "x" for n in range(17)}),
    bad("metadata.k", metadata={"k": 1}),
    bad("metadata.k", metadata={"k": None}),
    bad("metadata.k", metadata={"k": "v" * 513}),
    bad("metadata." + "k" * 65, metadata={"k" * 65: "v"}),
    *wrong("reasoning", "low", [], 5),
    *wrong("reasoning.effort", "ultra", 3, "", "LOW"),
    bad("reasoning.summary", reasoning={"summary": "long"}),
    *wrong("text", "text", []),
    bad("text.verbosity", text={"verbosity": "loud"}),
    *wrong("text.format", 5, "text", []),
    bad("text.format", text={"format": {"type": 5}}),
    bad("stream_options", stream_options=True),
    bad("truncation", truncation="most"),
    *wrong("service_tier", 1, "zz", "", "AUTO"),
    *[bad(name, **{name: 5}) for name in ("user", "safety_identifier", "prompt_cache_key")],
    bad("parallel_tool_calls", parallel_tool_calls="yes"),
    bad("top_logprobs", top_logprobs=21),
    *wrong("tool_choice", "required", 5, [], "AUTO", False, {"type": "web_search"}),
    bad("tool_choice.name", tool_choice={"type": "function", "name": "f"}),
    bad("background", background="yes"),
    bad("previous_response_id", previous_response_id=5),
    gone(previous_response_id=""),
    gone(previous_response_id="r" * 99_999),
    (raw(b'"temperature": NaN'), 400, "temperature", INVALID),
    (raw(b'"temperature": Infinity'), 400, "temperature", INVALID),
    (raw(b'"temperature": 1e999'), 400, "temperature", INVALID),
]
ITEMS: list[Row] = [
    *each(item, "[0]", 5, None, "hi", [], True, {"type": "zzz"}, {"type": []}),
    item("[1]", USER, {"type": "nothing"}),
    item("[0].role", {"content": "hi"}, code=MISSING),
    item("[0].content", {"role": "user"}, code=MISSING),
    *each(item, "[0].role", *({"role": role, "content": "x"} for role in ROLES)),
    *each(item, "[0].content", *({"role": "user", "content": v} for v in VALUES_OF_NO_TEXT)),
    item("[0].content[0]", {"role": "user", "content": [IMAGE]}, code="unsupported_content"),
    item("[0].content[0]", {"role": "user", "content": ["hi"]}),
    item("[0].content[1]", {"role": "user", "content": [{"type": "text", "text": "x"}, {}]}),
    item("[0].content[0].text", {"role": "user", "content": [{"type": "text"}]}, code=MISSING),
    item("[0].content[0].text", {"role": "user", "content": [{"type": "text", "text": 5}]}),
    item("[0].phase", USER | {"phase": "end"}),
    item("[0].status", USER | {"status": "done"}),
    item("[0].id", USER | {"id": 5}),
    *[
        item(f"[0].{name}", {k: v for k, v in CALL.items() if k != name}, code=MISSING)
        for name in ("call_id", "name", "arguments")
    ],
    *[item(f"[0].{name}", CALL | {name: ""}) for name in ("call_id", "name")],
    item("[0].arguments", CALL | {"arguments": {"city": "Bern"}}),
    item("[0].call_id", {"type": "function_call_output", "output": "x"}, code="unknown_call_id"),
    item(
        "[0].call_id",
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        CALL,
        code="unknown_call_id",
    ),
    item("[1].output", CALL, {"type": "function_call_output", "call_id": "c", "output": 5}),
    item("[0].summary", {"type": "reasoning", "summary": "x"}),
    item("[0].content[0].type", {"type": "reasoning", "content": [{"type": "x", "text": "x"}]}),
]
TOOLS: list[Row] = [
    *wrong("tools", {}, "f", 5),
    *each(tool, "[0]", 5, None, "f", []),
    tool("[0].type", {"name": "f"}, code=MISSING),
    tool("[0].type", {"type": 5}),
    *[
        tool("[0].type", {"type": name}, code="unsupported_tool")
        for name in ("web_search", "", "FUNCTION")
    ],
    tool("[0].name", {"type": "function"}, code=MISSING),
    *each(tool, "[0].name", *(F | {"name": name} for name in NAMES_OF_NO_TOOL)),
    tool("[0].description", F | {"description": 5}),
    *each(tool, "[0].parameters", *(F | {"parameters": value} for value in NO_SCHEMAS)),
    tool("[0].strict", F | {"strict": "yes"}),
    tool("[0].strict", F | {"strict": True}, code=UNSUPPORTED),
    tool("[1].name", F, F),
    tool("[0].parameters", F | {"parameters": {"maximum": 10**30}}),
    tool("[0]", F | {"extra": 10**30}),
    (nested('{"a":', "}", 5000), 400, None, "invalid_json"),
]
REFUSED: list[Row] = [
    *wrong(
        "text.format",
        {"type": "json_schema", "name": "x", "schema": {}},
        {"type": "json_object"},
        code=UNSUPPORTED,
    ),
    *wrong("conversation", 5, [], code="invalid_value"),
    bad("prompt", UNSUPPORTED, prompt={"id": "pmpt_1"}),
    *wrong("context_management", 5, code="invalid_value"),
]
TABLE = [*NOT_JSON, *NOT_AN_OBJECT, *TYPES, *ITEMS, *TOOLS, *REFUSED]


def test_bad_input_is_refused_by_name_before_any_token() -> None:
    """Budget: 2 s; some 200 rows on one app."""

    async def story() -> None:
        async with served() as s:
            for data, *expected in TABLE:
                call = await s.client.send("POST", "/v1/responses", data)
                assert call.status != 200, data[:200]
                told = [call.status, call.error["param"], call.error["code"]]
                assert told == expected, (data[:200], call.body[:300])
                check_headers(call)
                assert call.error["type"] == "invalid_request_error"
                assert len(call.body) < 1000
                assert "pydantic" not in call.error["message"]
            assert not s.engine.requests

    asyncio.run(story())


def test_the_same_faults_are_told_in_the_same_way_to_one_who_asked_for_a_stream() -> None:
    async def story() -> None:
        async with served() as s:
            for fields, param in (({"temperature": 3}, "temperature"), ({"input": []}, "input")):
                call = await s.client.create(stream=True, **fields)
                assert (call.status, call.error["param"]) == (400, param)
                assert call.headers["content-type"] == "application/json"

    asyncio.run(story())


CONTENT_TYPES = [
    *("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
    *("application/jsonx", "text/json", "application/json, text/plain", "json", "\xff" * 999),
]


def test_only_json_is_taken_for_json() -> None:
    """A page can send a form or plain text anywhere without asking the browser's leave."""

    async def story() -> None:
        async with served() as s:
            for value in CONTENT_TYPES:
                headers = JSON | {"content-type": value}
                call = await s.client.send("POST", "/v1/responses", body(), headers)
                assert (call.status, call.error["code"]) == (415, "unsupported_content_type")
                assert "application/json" in call.error["message"]
                check_headers(call)
                assert len(call.body) < 1000
            bare = await s.client.send("POST", "/v1/responses", body(), {"host": "localhost"})
            assert bare.status == 415

    asyncio.run(story())


def test_a_body_of_too_many_values_is_refused_before_it_is_parsed() -> None:
    async def story() -> None:
        async with served(max_body_values=50) as s:
            entries: list[object] = [[], {}, 1, "", None, "x,[{"]
            for entry in entries:
                for count, status in ((20, 200), (60, 413)):
                    sent = body(unknown=[entry for _ in range(count)])
                    call = await s.client.send("POST", "/v1/responses", sent)
                    assert call.status == status
                    check_headers(call)
            assert call.error["code"] == "request_too_large"
            assert "50 values" in call.error["message"]

    asyncio.run(story())


def test_a_body_over_the_limit_is_refused_with_a_length_and_without() -> None:
    async def story() -> None:
        async with served(max_body_bytes=1000) as s:
            for size, status in ((1000, 200), (1001, 413)):
                data = body(user="x" * (size - len(body(user=""))))
                assert len(data) == size
                parts = [data[n : n + 100] for n in range(0, size, 100)]
                for sent in (data, parts):
                    call = await s.client.send("POST", "/v1/responses", sent)
                    assert call.status == status
                    check_headers(call)
                    assert status == 200 or call.error["code"] == "request_too_large"
            lying = JSON | {"content-length": "10"}
            call = await s.client.send("POST", "/v1/responses", [b"x" * 600, b"y" * 600], lying)
            assert call.status == 413
            for length in ("-1", "1e9", "9" * 5000, "x"):
                headers = JSON | {"content-length": length}
                call = await s.client.send("POST", "/v1/responses", body(), headers)
                assert call.status in (200, 413)

    asyncio.run(story())


def test_a_body_that_is_declared_too_large_is_not_waited_for() -> None:
    async def story() -> None:
        async with served() as s:
            headers = JSON | {"content-length": str(10**12)}
            call = s.client.open("POST", "/v1/responses", [b"{", b"}"], headers)
            call.cut_body()
            assert (await call.done()).status == 413

    asyncio.run(story())


@pytest.mark.early(50)  # MB: a process has little yet
def test_large_inputs_are_answered_or_refused_but_never_break() -> None:
    """Budget: 4 s; ten megabytes twice, and ten thousand items."""

    async def story() -> None:
        async with served(max_body_bytes=16 << 20) as s:
            many = await s.client.create(input=[USER] * 10_000)
            assert many.status == 200
            assert len(s.prompt()) > 10_000 * 4
            for text in ("a" * 10_000_000, "Lorem ipsum, dolor. " * 500_000):
                call = await s.client.create(input=text)
                assert (call.status, call.error["code"]) == (400, "context_length_exceeded")
            huge = await s.client.create(input="a" * (17 << 20))
            assert huge.status == 413

    asyncio.run(story())


ODD_BUT_LAWFUL: list[bytes] = [
    b'{"model": "other", "model": "demo", "input": [], "input": "hi"}',
    body(input=" "),
    body(input="\x00\x7f\u2028\ufeff"),
    body(input=[{"role": "user", "content": []}]),
    body(input=[USER | {"extra": {"deep": [1]}}, {"role": "assistant", "content": ""}]),
    body(input=[CALL, CALL | {"name": "g"}]),
    body(input=[{"type": "reasoning", "summary": []}]),
    body(tools=[]),
    body(tools=[F | {"parameters": {}}, F | {"name": "g", "parameters": None}]),
    body(tools=[F | {"name": "x" * 64, "description": ""}]),
    body(tool_choice="auto", truncation="disabled", background=False, top_logprobs=0),
    body(text={"format": {"type": "text"}}, reasoning={}, metadata={}, include=[]),
    body(include=["reasoning.encrypted_content", "nonsense"]),
    body(metadata={f"{n:064}": "v" * 512 for n in range(16)}),
    raw(b'"zzz": NaN'),
    raw(b'"zzz": ' + b"[" * 150 + b"]" * 150),
    raw(b'"__class__": 1, "model_fields_set": ["background"], "model_extra": {"background": true}'),
    raw(b'"max_output_tokens": 9007199254740991'),
    raw(b'"user": "\\ud83d\\ude42"'),
    nested('{"a":', "}", 150),
]
SCHEMAS: list[Any] = [
    {"type": 5, "properties": [1], "enum": "x", "anyOf": 3, "required": {}},
    {"properties": {"a": None, "b": 5, "c": "x", "d": [], "e": {"type": []}}},
    {"properties": {"f": {"type": ["string", 5]}, "g": {"enum": [{}]}, "h": {"oneOf": [1, None]}}},
    {"properties": {"i": {"items": 5, "type": "array"}, "j": {"$ref": "#"}, "": {}}},
    {"type": "object", "required": [1, {}], "properties": {"a": {"properties": 5}}},
    {"type": ["object", None], "properties": {"b": {"description": 5, "default": {"x": [1]}}}},
    {"properties": {"c": {"enum": [1, None, 1.5, "x", []], "title": 5, "examples": 3}}},
    {"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"},
]


def test_odd_but_lawful_input_is_answered() -> None:
    async def story() -> None:
        async with served() as s:
            for data in (*ODD_BUT_LAWFUL, *(body(tools=[F | {"parameters": p}]) for p in SCHEMAS)):
                call = await s.client.send("POST", "/v1/responses", data)
                assert call.status == 200, (data[:200], call.body[:300])
                assert call.json()["status"] == "completed"
                for tool_sent, echo in zip(
                    json.loads(data).get("tools") or [], call.json()["tools"], strict=True
                ):
                    assert {
                        k: v for k, v in tool_sent.items() if v is not None
                    }.items() <= echo.items()

    asyncio.run(story())


NAMES = sorted(
    {
        *("model", "input", "tools", "reasoning", "text", "metadata", "stream", "stream_options"),
        *("temperature", "top_p", "tool_choice", "include", "store", "max_output_tokens", "type"),
        *("role", "content", "call_id", "name", "arguments", "output", "summary", "id", "status"),
        *("parameters", "description", "strict", "format", "effort", "background", "user", "text"),
    }
)
WORDS = st.sampled_from(
    [
        *("demo", "user", "function", "message", "function_call", "function_call_output", "auto"),
        *("reasoning", "input_text", "text", "assistant", "low", "hi", "<|end|>", "", "é🙂\x00"),
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=12,
)
BODIES = st.one_of(
    VALUES.map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass")),
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=5).map(
        lambda fields: json.dumps(asked() | fields).encode("utf-8", "surrogatepass")
    ),
    st.lists(VALUES, max_size=4).map(lambda items: json.dumps(asked(input=items)).encode()),
    st.lists(VALUES, max_size=3).map(lambda tools: json.dumps(asked(tools=tools)).encode()),
    st.binary(max_size=60),
)


@sampled("examples", [80, 400])  # 3 s
def test_no_body_whatever_is_a_fault_of_ours(examples: int) -> None:
    with asyncio.Runner() as runner:
        life = served()
        s = runner.run(life.__aenter__())

        @settings(
            max_examples=examples,
            suppress_health_check=list(HealthCheck),
        )
        @given(BODIES)
        def fuzz(data: bytes) -> None:
            call = runner.run(s.client.send("POST", "/v1/responses", data))
            assert call.status in (200, 400, 404), (data, call.body)
            assert call.status == 200 or call.error["message"]

        fuzz()
        runner.run(life.__aexit__(None, None, None))

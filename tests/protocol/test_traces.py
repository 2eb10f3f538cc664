"""Spans as a collector gets them, and lines of the log: whose they are, and no word of a text."""

from __future__ import annotations

import asyncio
import logging
import re

import orjson
import pytest

from tests.support.asgi import JSON, asked
from tests.support.otlp import collecting, values
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import STALLED, THOUGHT, served
from trt_responses.logs import JsonLines, TextLines
from trt_responses.tool import ToolAnswer

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BODY = orjson.dumps(asked(input="a secret word"))


def test_a_response_is_a_span_of_its_callers_trace_with_its_parts_below() -> None:
    headers = JSON | {
        "traceparent": f"00-{TRACE}-{SPAN}-01",
        "tracestate": "vendor=1",
        "x-request-id": "caller-7",
    }

    async def story(endpoint: str) -> str:
        async with served(THOUGHT, otlp_endpoint=endpoint) as s:
            call = await s.client.send("POST", "/v1/responses", BODY, headers)
            assert call.headers["x-request-id"] == "caller-7"
            given = s.last.options.trace_headers
            assert given == {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
            response_id: str = call.json()["id"]
            return response_id

    with collecting() as collector:
        response_id = asyncio.run(story(collector.endpoint))
    assert collector.resource["service.name"] == "trt_responses"
    (whole,) = [span for span in collector.spans if span.name == "chat demo"]
    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE, SPAN)
    assert whole.kind == whole.SPAN_KIND_SERVER
    told = values(whole.attributes)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.response.id"] == response_id
    assert told["gen_ai.response.finish_reasons"] == ["completed"]
    assert told["gen_ai.usage.output_tokens"] > told["gen_ai.usage.reasoning.output_tokens"] > 0
    assert told["trt_responses.request_id"] == "caller-7"
    parts = {span.name: span for span in collector.spans if span is not whole}
    assert set(parts) == {"queue", "prefill", "decode", "store"}
    last_ns = whole.start_time_unix_nano
    for name in ("queue", "prefill", "decode", "store"):
        assert parts[name].parent_span_id == whole.span_id
        assert abs(parts[name].start_time_unix_nano - last_ns) < 1_000_000, "each joins the last"
        last_ns = parts[name].end_time_unix_nano
    assert abs(last_ns - whole.end_time_unix_nano) < 1_000_000
    assert b"secret" not in b"".join(span.SerializeToString() for span in collector.spans)


@pytest.mark.parametrize("failed", [False, True])
def test_a_call_that_the_server_runs_is_a_span_within_the_decode(failed: bool) -> None:
    code = "<|channel|>analysis to=python code<|message|>print('secret')<|call|>"
    answer = "<|channel|>final<|message|>Done.<|return|>"
    tool = ScriptedTool(ToolAnswer("a secret word", failed=failed))
    offer = {"type": "code_interpreter", "container": {"type": "auto"}}

    async def story(endpoint: str) -> None:
        async with served(code, answer, tools=[tool], otlp_endpoint=endpoint) as s:
            await s.client.create(tools=[offer])

    with collecting() as collector:
        asyncio.run(story(collector.endpoint))
    spans = {span.name: span for span in collector.spans}
    call, decode, whole = spans["execute_tool python"], spans["decode"], spans["chat demo"]
    assert call.parent_span_id == whole.span_id
    assert decode.start_time_unix_nano <= call.start_time_unix_nano
    assert call.start_time_unix_nano <= call.end_time_unix_nano <= decode.end_time_unix_nano
    told = values(call.attributes)
    assert (told["gen_ai.tool.name"], told["trt_responses.failed"]) == ("python", failed)
    assert told["gen_ai.operation.name"] == "execute_tool"
    assert (call.status.code == call.status.STATUS_CODE_ERROR) == failed
    assert b"secret" not in b"".join(span.SerializeToString() for span in collector.spans)


def test_a_failed_response_is_an_error_and_names_are_the_conventions_or_ours() -> None:
    async def story(endpoint: str) -> None:
        async with served(STALLED, otlp_endpoint=endpoint) as s:
            call = s.client.ask(stream=True)
            await call.until(lambda call: b"output_text.delta" in call.body)
            s.burn_out()
            await call.done()

    with collecting() as collector:
        asyncio.run(story(collector.endpoint))
    (whole,) = [span for span in collector.spans if span.name == "chat demo"]
    assert whole.status.code == whole.status.STATUS_CODE_ERROR
    assert not whole.parent_span_id
    told = values(whole.attributes)
    assert all(name.startswith(("gen_ai.", "error.", "trt_responses.")) for name in told)
    assert told["error.type"] == "server_error"


@pytest.mark.parametrize("given", ["", "x" * 200, "a b", "ä", "a\tb"])
def test_an_id_that_cannot_be_told_is_replaced(given: str) -> None:
    async def story() -> None:
        async with served() as s:
            headers = JSON | {"x-request-id": given, "traceparent": "00-zz-1-01"}
            call = await s.client.send("POST", "/v1/responses", BODY, headers)
            assert call.headers["x-request-id"].startswith("req_")
            assert s.last.options.trace_headers == {}

    asyncio.run(story())


def test_each_request_has_one_line_as_text_or_json(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            headers = JSON | {"x-request-id": "one"}
            await s.client.send("POST", "/v1/responses", BODY, headers)
            await s.client.send("GET", "/v1/responses/resp_none", headers=headers)
            await s.client.send("GET", "/no/such", headers=headers)
            await s.client.get("/health/ready")

    caplog.set_level(logging.INFO, "trt_responses.requests")
    asyncio.run(story())
    records = [each for each in caplog.records if each.name == "trt_responses.requests"]
    text = [TextLines().format(record) for record in records]
    assert len(records) == 3, text
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    finished = (
        rf"{time} INFO finished resp_[0-9A-Za-z]{{8}} status=completed request=one tokens_in=\d+ "
        r"tokens_out=\d+ first_token_ms=\d+ duration_ms=\d+ tokens_per_s=(-|[\d.]+)"
    )
    assert re.fullmatch(finished, text[0])
    ends = r"status=404 request=one duration_ms=\d+"
    assert re.fullmatch(rf"{time} INFO rejected GET /v1/responses/{{response_id}} {ends}", text[1])
    assert re.fullmatch(rf"{time} INFO rejected any unknown {ends}", text[2])
    lines = [orjson.loads(JsonLines().format(record)) for record in records]
    assert [line["request"] for line in lines] == ["one"] * 3
    assert lines[0]["tokens_out"] > 1
    assert "repairs" not in lines[0]
    assert re.fullmatch(r"finished resp_[0-9A-Za-z]{22}", lines[0]["message"])
    assert {"at", "level", "logger", "message", "status", "duration_ms"} <= set(lines[1])
    assert "secret" not in "".join(text) + str(lines)

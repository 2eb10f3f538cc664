"""`/v2` in memory: shapes and faults that no client of Triton's sends. The real client is in
`tests/e2e/test_kserve_client.py`."""

from __future__ import annotations

import asyncio
import gzip
import struct
import zlib
from typing import Any

import orjson
import pytest

from tests.support.asgi import until
from tests.support.scripted.engine import Die, Script
from tests.support.served import ANSWER, ENDLESS, STALLED, THOUGHT, Served, ids, served

Json = dict[str, Any]

GENERATE, STREAM = "/v2/models/demo/generate", "/v2/models/demo/generate_stream"
INFER = "/v2/models/demo/infer"
HELLO = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["Hello"]}
PROMPT = "<|start|>user<|message|>Hello<|end|><|start|>assistant"
TEXT = "Hello there, friend."
HERE = {"host": "127.0.0.1"}
"""Triton's client names no content type."""


async def post(s: Served, path: str, body: object, **headers: str) -> Any:
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await s.client.send("POST", path, raw, HERE | named)


def events_of(body: bytes) -> list[Json]:
    *frames, rest = body.split(b"\n\n")
    assert rest == b""
    return [orjson.loads(frame.removeprefix(b"data: ")) for frame in frames]


def test_generate_answers_a_text() -> None:
    async def scenario() -> None:
        async with served(THOUGHT) as s:
            reply = await post(s, GENERATE, {"text_input": "Hello", "id": "7"})
            assert (reply.status, reply.json()) == (
                200,
                {
                    "id": "7",
                    "model_name": "demo",
                    "model_version": "1",
                    "text_output": TEXT,
                    "output_ids": list(ids(THOUGHT)),
                    "finish_reason": "stop",
                },
            )
            assert s.prompt_text().endswith(
                "<|start|>user<|message|>Hello<|end|><|start|>assistant"
            )

    asyncio.run(scenario())


def test_ids_are_the_prompt_as_they_are() -> None:
    async def scenario() -> None:
        async with served(ANSWER) as s:
            prompt = list(ids(PROMPT))
            reply = await post(s, GENERATE, {"input_ids": prompt})
            assert s.prompt() == prompt
            assert reply.json()["output_ids"] == list(ids(ANSWER))

    asyncio.run(scenario())


def test_a_prompt_may_begin_the_answer() -> None:
    async def scenario() -> None:
        async with served(Script((*((i,) for i in ids(" friend.<|return|>")),))) as s:
            prompt = list(ids(PROMPT + "<|channel|>final<|message|>Hello there,"))
            reply = await post(s, GENERATE, {"input_ids": prompt})
            assert s.prompt() == prompt
            assert reply.json()["text_output"] == TEXT
            assert reply.json()["output_ids"] == list(ids(" friend.<|return|>"))

    asyncio.run(scenario())


def test_a_tensor_of_one_element_is_a_bare_value() -> None:
    async def scenario() -> None:
        async with served(Script((ids("<|return|>"),))) as s:
            reply = await post(s, GENERATE, {"input_ids": ids(PROMPT)[0]})
            assert reply.json()["output_ids"] == ids("<|return|>")[0]

    asyncio.run(scenario())


@pytest.mark.parametrize("written", [ANSWER, THOUGHT])
def test_a_stream_is_the_answer_in_pieces_and_how_it_ended(written: str) -> None:
    async def scenario() -> None:
        async with served(written) as s:
            reply = await post(s, STREAM, {"text_input": "Hello"})
            assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
            *texts, last = events_of(reply.body)
            assert "".join(event["text_output"] for event in texts) == TEXT
            assert len(texts) > 1
            assert last["finish_reason"] == "stop"
            assert last["output_ids"] == list(ids(written))
            assert all(event["model_version"] == "1" for event in (*texts, last))

    asyncio.run(scenario())


def test_an_answer_that_is_cut_says_so() -> None:
    async def scenario() -> None:
        async with served(ANSWER) as s:
            body = {"text_input": "Hello", "parameters": {"max_tokens": 5}}
            assert (await post(s, GENERATE, body)).json()["finish_reason"] == "length"
            *_, last = events_of((await post(s, STREAM, body)).body)
            assert last["finish_reason"] == "length"

    asyncio.run(scenario())


def test_parameters_stand_in_their_object_or_beside_the_inputs() -> None:
    async def scenario() -> None:
        async with served(ANSWER) as s:
            nested = {"parameters": {"temperature": 0.5, "seed": 3}, "top_k": 4}
            await post(s, GENERATE, {"text_input": "Hello"} | nested)
            options = s.last.options
            assert (options.temperature, options.seed, options.top_k) == (0.5, 3, 4)
            odd = {"text_input": "Hello", "priority": 2, "stream": False}
            reply = await post(s, GENERATE, odd)
            assert reply.headers["x-trt-ignored"] == "priority"

    asyncio.run(scenario())


def test_an_engine_that_dies_is_an_event_in_a_stream_and_a_status_before() -> None:
    async def scenario() -> None:
        dies = Script((*((i,) for i in ids("<|channel|>final<|message|>Hello")), Die("burnt out")))
        async with served(dies) as s:
            *_, last = events_of((await post(s, STREAM, {"text_input": "Hello"})).body)
            assert "burnt out" in last["error"]
            plain = await post(s, GENERATE, {"text_input": "Hello"})
            assert plain.status >= 500
            assert isinstance(plain.json()["error"], str)

    asyncio.run(scenario())


def test_a_client_that_hangs_up_ends_its_run() -> None:
    async def scenario() -> None:
        async with served(STALLED) as s:
            for path in (GENERATE, STREAM):
                call = s.client.open("POST", path, orjson.dumps({"text_input": "Hello"}), HERE)
                await until(lambda: len(s.runs) == 1)
                call.hang_up()
                await call.done()
                assert len(s.runs) == 0

    asyncio.run(scenario())


def packed(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def binary(tensor: Json, data: bytes, *, declared: int | None = None, **rest: object) -> Any:
    size = {"binary_data_size": len(data) if declared is None else declared}
    head = orjson.dumps({"inputs": [tensor | {"parameters": size}]} | rest)
    return head + data, {"inference_header_content_length": str(len(head))}


TENSOR = {"name": "text_input", "shape": [1], "datatype": "BYTES"}


@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
def test_binary_data_may_come_compressed(coding: str | None) -> None:
    async def scenario() -> None:
        async with served(ANSWER) as s:
            body, headers = binary(TENSOR, packed(b"Hello"), outputs=[{"name": "text_output"}])
            if coding:
                body = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
                headers |= {"content_encoding": coding, "accept_encoding": coding}
            reply = await post(s, INFER, body, **headers)
            assert reply.status == 200
            raw = reply.body
            if coding:
                assert reply.headers["content-encoding"] == coding
                raw = zlib.decompress(raw, 47)
            assert orjson.loads(raw)["outputs"] == [
                {"name": "text_output", "datatype": "BYTES", "shape": [1], "data": [TEXT]}
            ]

    asyncio.run(scenario())


BAD_GENERATE: list[tuple[object, int, str]] = [
    (b"", 400, "not JSON"),
    (b"[]", 400, "JSON object"),
    ({}, 400, "'text_input' and 'input_ids'"),
    ({"text_input": "a", "input_ids": [1]}, 400, "'text_input' and 'input_ids'"),
    ({"text_input": 3}, 400, "should be a string"),
    ({"text_input": ["a", "b"]}, 400, "should be a string"),
    ({"input_ids": []}, 400, "list of token ids"),
    ({"input_ids": [1, "a"]}, 400, "list of token ids"),
    ({"input_ids": [True]}, 400, "list of token ids"),
    ({"input_ids": [-1]}, 400, "input_ids[0]"),
    ({"input_ids": [300_000]}, 400, "input_ids[0]"),
    ({"input_ids": [1] * 200_000}, 413, "values"),
    ({"text_input": "a", "parameters": []}, 200, ""),
    ({"text_input": "a", "parameters": 3}, 400, "should be an object"),
    ({"text_input": "a", "parameters": {"temperature": 9}}, 400, "temperature"),
    ({"text_input": "a", "parameters": {"max_tokens": 0}}, 400, "max_tokens"),
    ({"text_input": "a", "seed": "x"}, 400, "seed"),
    ({"text_input": "a", "id": 3}, 400, "'id'"),
    ({"input_ids": [1], "reasoning_effort": "low"}, 400, "belongs to 'text_input'"),
    ({"text_input": "word " * 200}, 400, "limit 180"),
]


@pytest.mark.parametrize(("body", "status", "says"), BAD_GENERATE)
def test_what_generate_does_not_take(body: object, status: int, says: str) -> None:
    async def scenario() -> None:
        async with served(ANSWER, context_tokens=180) as s:
            for path in (GENERATE, STREAM):
                reply = await post(s, path, body)
                assert reply.status == status
                if status != 200:
                    assert says in reply.json()["error"]

    asyncio.run(scenario())


def inputs(**changed: object) -> Json:
    return {"inputs": [HELLO | changed]}


BAD_INFER: list[tuple[Any, Json, int, str]] = [
    ({"inputs": []}, {}, 400, "inputs"),
    (inputs(name="prompt"), {}, 400, "unexpected inference input 'prompt'"),
    (inputs(datatype="INT32"), {}, 400, "datatype"),
    (inputs(shape=[2]), {}, 400, "shape"),
    (inputs(shape=[]), {}, 400, "shape"),
    (inputs(shape=[1], data=["a", "b"]), {}, 400, "shape"),
    (inputs(data=[3]), {}, 400, "should be a string"),
    (inputs(data=None), {}, 400, "no 'data'"),
    ({"inputs": [HELLO, HELLO]}, {}, 400, "comes twice"),
    (inputs() | {"outputs": [{"name": "logits"}]}, {}, 400, "unexpected inference output"),
    (inputs() | {"parameters": {"binary_data_output": 1}}, {}, 400, "true or false"),
    (*binary(TENSOR, b"\x05\0\0\0Hell"), 400, "its length first"),
    (*binary(TENSOR, packed(b"\xff\xfe")), 400, "UTF-8"),
    (*binary(TENSOR, packed(b"Hello"), declared=99), 400, "binary_data_size"),
    (*binary(TENSOR, packed(b"Hello"), declared=3), 400, "its length first"),
    (*binary(TENSOR | {"name": "input_ids", "datatype": "INT32"}, b"abc"), 400, "INT32"),
    (inputs(), {"inference_header_content_length": "-1"}, 400, "no length"),
    (inputs(), {"inference_header_content_length": "9999"}, 400, "9999"),
    (inputs(), {"content_encoding": "br"}, 400, "not known"),
    (inputs(), {"content_encoding": "gzip"}, 400, "gzip"),
]


@pytest.mark.parametrize(("body", "headers", "status", "says"), BAD_INFER)
def test_what_infer_does_not_take(body: Any, headers: Json, status: int, says: str) -> None:
    async def scenario() -> None:
        async with served(ANSWER) as s:
            reply = await post(s, INFER, body, **headers)
            assert (reply.status, set(reply.json())) == (status, {"error"})
            assert says in reply.json()["error"]

    asyncio.run(scenario())


def test_a_body_that_inflates_without_end_is_refused() -> None:
    async def scenario() -> None:
        async with served(ANSWER, max_body_bytes=100_000) as s:
            bomb = gzip.compress(b"\0" * 20_000_000)
            assert len(bomb) < 100_000
            reply = await post(s, INFER, bomb, content_encoding="gzip")
            assert (reply.status, set(reply.json())) == (413, {"error"})

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/nobody", 400),
        ("GET", "/v2/models/demo/versions/2", 404),
        ("GET", "/v2/models/demo/versions/x/ready", 404),
        ("POST", "/v2/models/nobody/infer", 400),
        ("GET", "/v2/nothing", 404),
        ("GET", "/v2nothing", 404),
        ("GET", INFER, 405),
        ("POST", "/v2/models/demo/config", 405),
        ("POST", "/v2/repository/models/demo/load", 400),
        ("POST", "/v2/repository/models/demo/unload", 400),
        ("GET", "/v2/trace/setting", 501),
        ("GET", "/v2/systemsharedmemory/status", 501),
    ],
)
def test_every_refusal_is_flat(method: str, path: str, status: int) -> None:
    async def scenario() -> None:
        async with served(ANSWER) as s:
            reply = await s.client.send(method, path, b"{}" if method == "POST" else b"")
            assert (reply.status, set(reply.json())) == (status, {"error"})
            assert isinstance(reply.json()["error"], str)

    asyncio.run(scenario())


def test_foreign_hosts_and_keys_are_refused_and_probes_are_not() -> None:
    async def scenario() -> None:
        async with served(ANSWER, api_keys=("me:k",)) as s:
            foreign = {"host": "10.0.0.7"}
            for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/demo/ready"):
                assert (await s.client.send("GET", path, headers=foreign)).status == 200
            assert (await s.client.send("GET", "/v2", headers=foreign)).status == 403
            for path in ("/v2", "/v2/models/demo"):
                assert (await s.client.send("GET", path, headers=HERE)).status == 401
            key = HERE | {"authorization": "Bearer k"}
            assert (await s.client.send("GET", "/v2", headers=key)).status == 200
            load = await s.client.send("POST", "/v2/logging", b"{}", headers=key)
            assert load.status == 403

    asyncio.run(scenario())


@pytest.mark.parametrize("keys", [(), ("me:k",)], ids=["without keys", "with keys"])
def test_what_changes_the_server_takes_an_admins_key_alone(keys: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with served(ANSWER, api_keys=keys, admin_key="boss") as s:
            log = orjson.dumps({"log_verbose_level": 0})
            for path, body in (
                ("/v2/logging", log),
                ("/v2/repository/models/demo/load", b""),
                ("/v2/repository/models/demo/unload", b""),
            ):
                found = []
                for key in ("", "Bearer k", "Bearer boss"):
                    given = HERE | ({"authorization": key} if key else {})
                    found.append((await s.client.send("POST", path, body, given)).status)
                assert found[:2] == [401, 403]
                assert found[2] == (200 if path == "/v2/logging" else 400)

    asyncio.run(scenario())


def test_readiness_is_the_servers() -> None:
    async def scenario() -> None:
        async with served(ENDLESS) as s:
            s.drain()
            assert (await s.client.send("GET", "/v2/health/live")).status == 200
            assert (await s.client.send("GET", "/v2/health/ready")).status == 400
            assert (await s.client.send("GET", "/v2/models/demo/ready")).status == 400
            index = (await post(s, "/v2/repository/index", b"")).json()
            assert index == [
                {
                    "name": "demo",
                    "version": "1",
                    "state": "UNAVAILABLE",
                    "reason": "the server is being stopped",
                }
            ]
            assert (await post(s, "/v2/repository/index", {"ready": True})).json() == []
            assert (await post(s, "/v2/repository/index", b"[1")).status == 400
            assert (await post(s, GENERATE, {"text_input": "Hello"})).status == 503

    asyncio.run(scenario())


def test_statistics_count_what_every_endpoint_made() -> None:
    async def scenario() -> None:
        async with served(ANSWER) as s:
            await post(s, GENERATE, {"text_input": "Hello"})
            body = orjson.dumps({"model": "demo", "input": "Hello"})
            await s.client.send("POST", "/v1/responses", body)
            [stats] = (await s.client.send("GET", "/v2/models/stats")).json()["model_stats"]
            assert (stats["name"], stats["inference_count"]) == ("demo", 2)
            sums = stats["inference_stats"]
            assert sums["success"]["count"] == sums["compute_infer"]["count"] == 2
            assert sums["success"]["ns"] > 0
            assert sums["fail"] == {"count": 0, "ns": 0}

    asyncio.run(scenario())

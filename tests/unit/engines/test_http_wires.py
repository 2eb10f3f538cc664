"""What each server over HTTP is sent, and what comes of what it answers, refuses and breaks off.

Budget: 3 s on one core.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.double.llm import nothing_ignored
from tests.support.engine_claims import CONTEXT, PROMPT, SLOTS, greedy
from tests.support.gather import Gather, begin, generated
from tests.support.id_servers import IdServer, SglangServer, VllmServer, echoing, id_server
from tests.support.polling import until_seen
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from trt_responses.backends.elsewhere import Elsewhere
from trt_responses.backends.http import http_at, scheme_of
from trt_responses.engine import GenerateOptions, Guide
from trt_responses.engines.distant import Patience
from trt_responses.engines.http_engine import HttpEngine
from trt_responses.engines.http_server import Address, address_of
from trt_responses.engines.id_events import IdEvents, Part
from trt_responses.engines.sglang.wire import SglangWire
from trt_responses.engines.vllm.wire import VllmWire
from trt_responses.errors import ApiError, EngineUnavailable, InvalidRequest, StartupError
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trt_responses.engine import GuideKind

RICH = GenerateOptions(
    5,
    (CONTROL.call,),
    temperature=0.5,
    top_p=0.25,
    top_k=7,
    min_p=0.125,
    presence_penalty=0.5,
    frequency_penalty=0.25,
    repetition_penalty=1.5,
    logit_bias=((12, 1.0), (13, 2.0)),
    seed=9,
    logprobs=3,
    guide=Guide("json_schema", "{}"),
    banned_ids=(11, 11, 12, 201_000),
    cache_salt="an owner/with\\signs",
    adapter="style",
    priority=1.0,
    trace_headers={"traceparent": "00-1"},
    request_id="resp",
)
KEEN = Patience(look_s=0.02, start_s=0.0)
ENDS = [CONTROL.call, CONTROL.return_, CONTROL.endoftext]


def engine_at(port: int, server: IdServer, patience: Patience = KEEN, key: str = "") -> HttpEngine:
    wire = VllmWire() if isinstance(server, VllmServer) else SglangWire()
    address = Address("127.0.0.1", port, "demo")
    return HttpEngine(address, wire, patience, key=key, find_ignored=nothing_ignored)


@asynccontextmanager
async def over(server: IdServer, **given: Any) -> AsyncIterator[HttpEngine]:
    async with id_server(server) as port:
        engine = engine_at(port, server, **given)
        await engine.start()
        server.bodies.clear()
        try:
            yield engine
        finally:
            await engine.stop(1)


def guided(kind: type[IdServer], **limits: Any) -> IdServer:
    """One with guides of JSON and regex; each answer is two ids and an end."""
    ends = frozenset({CONTROL.return_})
    guides: dict[GuideKind, frozenset[int]] = {"json_schema": ends, "regex": ends}
    script = Script(((5,), (6,), (CONTROL.return_,)), cached_tokens=3)
    clock = StepClock.free()
    return kind(ScriptedEngine([script], clock=clock, guides=guides, max_batch=SLOTS, **limits))


async def body_of(server: IdServer) -> dict[str, Any]:
    server.adapters = ("style",)
    async with over(server) as engine:
        assert engine.limits().adapters == ("style",)
        assert set(engine.limits().guides) == {"json_schema", "regex"}
        received = await generated(engine, PROMPT, RICH)
        assert (received.token_ids, received.cached_tokens) == ([5, 6, CONTROL.return_], 3)
        assert (received.end.finish, received.end.stop_id) == ("stop", CONTROL.return_)
        assert server.misuse == []
        assert server.heads[-1]["traceparent"] == "00-1"
        return server.bodies[-1]


def test_vllm_gets_every_option_by_its_own_name() -> None:
    body = asyncio.run(body_of(guided(VllmServer, adapters=("style",))))
    sampling = body.pop("sampling_params")
    salt, name = body.pop("cache_salt"), body.pop("request_id")
    assert len(salt) == 64
    assert name.startswith("resp-")
    assert body == {
        "token_ids": PROMPT,
        "stream": True,
        "stream_options": {"include_usage": True},
        "reasoning_ended": True,
        "model": "style",
        "priority": -50,
    }
    assert sampling == {
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "repetition_penalty": 1.5,
        "seed": 9,
        "stop_token_ids": ENDS,
        "ignore_eos": True,
        "detokenize": False,
        "skip_special_tokens": False,
        "logprobs": 3,
        "logit_bias": {"11": -100.0, "12": -100.0, "13": 2.0},
        "structured_outputs": {"json": "{}"},
    }


def test_sglang_gets_every_option_by_its_own_name() -> None:
    body = asyncio.run(body_of(guided(SglangServer, adapters=("style",))))
    sampling = body.pop("sampling_params")
    assert len(body.pop("extra_key")) == 64
    assert body == {
        "input_ids": PROMPT,
        "stream": True,
        "return_logprob": True,
        "top_logprobs_num": 3,
        "lora_path": "style",
        "priority": 50,
    }
    assert sampling == {
        "max_new_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "repetition_penalty": 1.5,
        "stop_token_ids": ENDS,
        "skip_special_tokens": False,
        "no_stop_trim": True,
        "logit_bias": {"11": -100.0, "12": -100.0, "13": 2.0},
        "sampling_seed": 9,
        "json_schema": "{}",
    }


@pytest.mark.parametrize("repeats", [True, False])
def test_sglang_streams_each_id_once_whether_it_repeats_them_or_not(repeats: bool) -> None:
    async def claim() -> None:
        server = guided(SglangServer)
        assert isinstance(server, SglangServer)
        server.repeats = repeats
        async with over(server) as engine:
            received = await generated(engine, PROMPT, greedy(8, (CONTROL.return_,), logprobs=1))
            assert received.token_ids == [5, 6, CONTROL.return_]
            assert [entry.token_id for entry in received.logprobs] == received.token_ids

    asyncio.run(claim())


def test_what_a_server_lacks_is_known_from_its_start(caplog: pytest.LogCaptureFixture) -> None:
    async def claim() -> None:
        server = echoing("vllm")
        assert isinstance(server, VllmServer)
        server.priorities, server.max_logprobs, server.version = False, 5, "0.41.2"
        server.reports_batch = False
        async with over(server) as engine:
            limits = engine.limits()
            assert (limits.context_tokens, limits.max_batch) == (CONTEXT, 256)
            assert (limits.max_logprobs, limits.guides) == (5, {})
            assert engine.about.startswith("vLLM 0.41.2, model openai/gpt-oss; no priorities: ")
            received, _ = begin(engine, PROMPT, replace(greedy(2), priority=1.0))
            await received.done()
            assert "priority" not in server.bodies[-1]
            assert server.bodies[-1]["model"] == "openai/gpt-oss"

    with caplog.at_level(logging.WARNING):
        asyncio.run(claim())
    assert "runs vLLM 0.41.2: this adapter was written for 0.33" in caplog.text


async def failed_start(server: IdServer, key: str = "") -> str:
    async with id_server(server) as port:
        with pytest.raises(StartupError) as failed:
            await engine_at(port, server, key=key).start()
        return str(failed.value)


def test_a_server_that_cannot_serve_ids_says_what_to_do() -> None:
    closed = echoing("vllm")
    assert isinstance(closed, VllmServer)
    closed.scale_out = False
    assert "Scale-out endpoints are disabled" in asyncio.run(failed_start(closed))
    locked = echoing("sglang")
    locked.key = "secret"
    assert "/server_info is refused: Unauthorized" in asyncio.run(failed_start(locked, "other"))
    sick = echoing("vllm")
    sick.status = 503
    assert "accepted no request within 0 s: status 503" in asyncio.run(failed_start(sick))
    other = echoing("sglang")

    async def claim() -> None:
        async with id_server(other) as port:
            engine = engine_at(port, echoing("vllm"))
            with pytest.raises(StartupError, match="has no /inference/v1/generate: start vLLM"):
                await engine.start()

    asyncio.run(claim())


def test_a_key_is_sent() -> None:
    async def claim() -> None:
        server = echoing("vllm")
        server.key = "secret"
        async with over(server, key="secret") as engine:
            assert (await generated(engine, PROMPT, greedy(2))).end.finish == "length"

    asyncio.run(claim())


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_closed_stream_aborts_the_request_there(kind: str) -> None:
    async def claim() -> None:
        server = echoing(kind)
        async with over(server) as engine:
            received, handle = begin(engine, PROMPT, GenerateOptions(10_000, (), seed=1))
            await received.some(3)
            handle.abort()
            await until_seen(lambda: server.aborted == 1)

    asyncio.run(claim())


@pytest.mark.parametrize(
    ("status", "error", "lost"),
    [
        (400, InvalidRequest, None),
        (401, EngineUnavailable, None),
        (429, EngineUnavailable, None),
        (500, None, "died"),
    ],
)
def test_a_refusal_is_the_requests_and_a_failure_the_engines(
    status: int, error: type[ApiError] | None, lost: str | None
) -> None:
    async def claim() -> None:
        server = echoing("vllm")
        async with over(server) as engine:
            server.status = status
            received = await begin(engine, PROMPT, greedy())[0].done()
            last = received.chunks[-1]
            assert ("status 500" if lost else "encountered an issue") in (last.error or "")
            assert (type(last.refusal) if last.refusal else None) is error
            assert last.lost == lost
            assert engine.health().ready is (lost is None)
            server.status = 200
            await until_seen(lambda: engine.health().ready)

    asyncio.run(claim())


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_half_a_stream_keeps_its_ids_and_may_go_on(kind: str) -> None:
    async def claim() -> None:
        server = echoing(kind)
        async with over(server) as engine:
            server.cut_after = 3
            received = await begin(engine, PROMPT, greedy())[0].done()
            last = received.chunks[-1]
            assert len(received.token_ids) == 3
            assert "broke the connection" in (last.error or "")
            assert last.lost == "died"
            assert engine.health().ready  # its other requests go on

    asyncio.run(claim())


def test_an_event_that_cannot_be_read_fails_its_request_alone() -> None:
    async def claim() -> None:
        server = echoing("vllm")
        async with over(server) as engine:
            server.garbled = True
            received = await begin(engine, PROMPT, greedy())[0].done()
            assert "cannot be read" in (received.end.error or "")
            server.garbled = False
            assert (await generated(engine, PROMPT, greedy(2))).end.finish == "length"

    asyncio.run(claim())


def test_a_frozen_server_loses_its_requests_and_comes_back_with_other_limits() -> None:
    async def claim() -> None:
        hasty = Patience(look_s=0.02, answer_s=0.2, misses=2, start_s=0)
        server = echoing("vllm")
        async with over(server, patience=hasty) as engine:
            received: Gather = begin(engine, PROMPT, GenerateOptions(10_000, (), seed=1))[0]
            await received.some(3)
            server.thawed.clear()
            await received.done()
            assert received.chunks[-1].lost == "died"
            assert "does not answer" in (received.end.error or "")
            with pytest.raises(EngineUnavailable):
                begin(engine, PROMPT, greedy())
            server.max_logprobs = 1
            server.thawed.set()
            await until_seen(lambda: engine.health().ready)
            assert engine.limits().max_logprobs == 1

    asyncio.run(claim())


def test_a_place_is_a_host_a_port_and_a_model_name() -> None:
    assert address_of("[::1]:8000/openai/gpt-oss", tls=True) == (
        *("::1", 8000, "openai/gpt-oss", True),
    )
    assert str(address_of("[::1]:8000")) == "[::1]:8000"
    for wrong in ("", "host", "host:port", "user:secret@host:80", "host:0x5"):
        with pytest.raises(StartupError, match="use host:port") as failed:
            address_of(wrong)
        assert "secret" not in str(failed.value)
    for kind in ("vllm", "vllm+http", "vllm+https", "vllm=http"):
        assert scheme_of(kind) == "vllm"


def test_the_end_waits_for_what_a_server_sends_behind_it() -> None:
    events = IdEvents(greedy(8, (7,)), 8, lambda event, _: Part(**event))
    first = events.feed(b': ping\n\ndata: {"token_ids": [1, 2]}\r\n\r\nda')
    assert first is not None
    assert (list(first.token_ids), first.finish) == ([1, 2], None)
    assert events.feed(b'ta: {"token_ids": [7, 8], "end": "stop"}\n\n') is None
    assert events.held is not None
    assert (list(events.held.token_ids), events.held.stop_id) == ([7], 7)
    last = events.feed(b'data: {"cached_tokens": 4, "whole": true}\n\ndata: [DONE]\n\n')
    assert last is not None
    assert (list(last.token_ids), last.finish, last.cached_tokens) == ([7], "stop", 4)


@pytest.mark.parametrize(("kind", "name"), [("vllm", "vLLM 0.33"), ("sglang", "SGLang 0.5")])
def test_a_plain_url_finds_out_which_server_it_is(kind: str, name: str) -> None:
    async def claim() -> None:
        async with id_server(echoing(kind)) as port:
            engine = http_at(Elsewhere("http", f"127.0.0.1:{port}"), 0)
            await engine.start()
            assert engine.about.startswith(name)
            assert (await generated(engine, PROMPT, greedy(2))).end.finish == "length"
            await engine.stop(1)

    asyncio.run(claim())

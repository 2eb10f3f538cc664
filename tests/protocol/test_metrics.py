"""`/metrics` over the app: what is counted, once, and what nobody can write into it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import JSON, until
from tests.support.metrics_judge import Scrape, read_open_metrics, read_text, samples
from tests.support.scripted.engine import Die, Stall
from tests.support.served import ANSWER, CALL, THOUGHT, WEATHER, ids, script, served
from tests.support.turns import turn
from trt_responses.features.limits.key_file import changing
from trt_responses.features.limits.keys import Key, digest_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.asgi import Client

CREATE = {"method": "POST", "endpoint": "/v1/responses"}


async def scrape(client: Client, **headers: str) -> Scrape:
    call = await client.send("GET", "/metrics", headers=JSON | headers)
    assert call.status == 200
    return Scrape(call.body)


def test_each_request_is_counted_once_by_endpoint_status_and_end() -> None:
    cut = script("<|channel|>final<|message|>" + " word" * 50)
    dying = script("<|channel|>final<|message|>Hello th", Die("out of memory"))
    stalled = script("<|channel|>final<|message|>Hold", Stall())

    async def story() -> None:
        async with served(ANSWER, ANSWER, cut, dying, dying, stalled, manual=False) as s:
            await s.client.create()
            await s.client.create(stream=True)
            await s.client.create(max_output_tokens=20)
            await s.client.create()
            await s.client.create(stream=True)
            leaving = s.client.ask(stream=True)
            await until(lambda: len(s.engine.requests) == 6)
            leaving.hang_up()
            await leaving.done()
            await s.client.create(model="other")
            await s.client.create(temperature=9)
            await s.client.get("/v1/responses/resp_none")
            await s.client.get("/nowhere")
            await s.client.send("PATCH", "/v1/models")
            found = await scrape(s.client)
            counted = {
                tuple(dict(labels)[k] for k in ("method", "endpoint", "status", "end")): value
                for (name, labels), value in found.all.items()
                if name == "trt_responses_requests_total"
            }
            post = ("POST", "/v1/responses")
            assert counted == {
                (*post, "200", "completed"): 2,
                (*post, "200", "incomplete"): 1,
                (*post, "500", "failed"): 1,
                (*post, "200", "failed"): 1,
                (*post, "200", "cancelled"): 1,
                (*post, "404", "none"): 1,
                (*post, "400", "none"): 1,
                ("GET", "/v1/responses/{response_id}", "404", "none"): 1,
                ("any", "unknown", "404", "none"): 1,
                ("any", "unknown", "405", "none"): 1,
            }
            for end, count in (("completed", 2), ("incomplete", 1), ("failed", 2)):
                assert found.ours("responses_total", end=end) == count
            again = await scrape(s.client)
            assert again.ours("requests_total", endpoint="/metrics") == 1

    asyncio.run(story())


def test_tokens_calls_repairs_and_seconds_are_those_of_the_responses() -> None:
    mended = "Hello, with no header<|return|>"

    async def story() -> None:
        async with served(THOUGHT, CALL, mended) as s:
            used = [(await s.client.create(tools=[WEATHER])).json()["usage"] for _ in range(3)]
            found = await scrape(s.client)
            tokens = {
                kind: found.ours("tokens_total", kind=kind)
                for kind in ("prompt", "cached", "generated")
            }
            assert tokens == {
                "prompt": sum(each["input_tokens"] for each in used),
                "cached": sum(each["input_tokens_details"]["cached_tokens"] for each in used),
                "generated": sum(each["output_tokens"] for each in used),
            }
            assert found.ours("tool_calls_total", kind="function_call") == 1
            assert found.ours("repairs_total") >= 1
            for name in ("queue", "prefill", "first_token", "decode", "engine", "response"):
                assert found.ours(f"{name}_seconds_count") == 3, name
            assert found.ours("mean_inter_token_seconds_count") == 3
            gaps = sum(each["output_tokens"] - 1 for each in used)
            assert found.ours("inter_token_seconds_count") == gaps
            parts = sum(found.ours(f"{n}_seconds_sum") for n in ("queue", "prefill", "decode"))
            assert 0 < parts <= found.ours("response_seconds_sum")
            spread = found.ours("inter_token_seconds_sum")
            assert spread == pytest.approx(found.ours("decode_seconds_sum"))

    asyncio.run(story())


def test_what_is_being_made_is_seen_and_its_tokens_are_counted_as_they_come() -> None:
    async def story() -> None:
        async with served(ANSWER, manual=True, max_batch=2) as s:
            calls = [s.client.ask() for _ in range(3)]
            await until(lambda: s.health().waiting == 1)
            await s.clock.step(4)
            found = await scrape(s.client)
            assert found.ours("responses_running") == 2
            assert found.ours("responses_waiting") == 1
            assert (early := found.ours("tokens_total", kind="generated")) > 0
            while not all(call.ended for call in calls):
                await s.clock.step()
                late = (await scrape(s.client)).ours("tokens_total", kind="generated")
                assert late >= early, "a counter never falls"
                early = late
            await until(lambda: len(s.runs) == 0)  # a run is counted behind its reply
            found = await scrape(s.client)
            assert found.ours("tokens_total", kind="generated") == 3 * len(ids(ANSWER))
            assert found.ours("responses_running") == found.ours("responses_waiting") == 0

    asyncio.run(story())


def test_the_history_and_the_cache_of_the_engine_are_told_of() -> None:
    async def story() -> None:
        async with served(ANSWER, manual=True, context_tokens=1000, max_batch=2) as s:
            call = s.client.ask(model="demo", input="Hello")
            await until(lambda: s.health().running == 1)
            await s.clock.step(3)
            held = (await scrape(s.client)).ours("kv_cache_use_ratio")
            assert held == (len(s.engine.requests[0].prompt_ids) + 3) / 2000
            while not call.ended:
                await s.clock.step()
            made = (await call.done()).json()["id"]
            await s.client.get(f"/v1/responses/{made}")
            await s.client.get("/v1/responses/resp_none")
            found = await scrape(s.client)
            assert found.ours("kv_cache_use_ratio") == 0
            assert found.ours("store_reads_total", outcome="found") == 1
            assert found.ours("store_reads_total", outcome="absent") == 1
            assert found.ours("store_records") == 1
            assert found.ours("store_bytes") > 0
            assert found.ours("store_blocks_read_total", source="store") > 0
            assert found.ours("store_evictions_total") == 0

    asyncio.run(story())


def test_a_chat_completion_is_counted_with_its_end() -> None:
    async def story() -> None:
        async with served() as s:
            body = b'{"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}'
            assert (await s.client.send("POST", "/v1/chat/completions", body)).status == 200
            found = await scrape(s.client)
            chat = {"endpoint": "/v1/chat/completions", "end": "completed"}
            assert found.ours("requests_total", **chat) == 1

    asyncio.run(story())


def test_a_background_response_is_counted_at_its_end() -> None:
    async def story() -> None:
        async with served() as s:
            made = (await s.client.create(background=True)).json()["id"]
            while (await s.client.get(f"/v1/responses/{made}")).json()["status"] != "completed":
                await turn()
            found = await scrape(s.client)
            assert found.ours("requests_total", end="background", **CREATE) == 1
            assert found.ours("responses_total", end="completed") == 1

    asyncio.run(story())


def test_whoever_accepts_open_metrics_gets_it_and_it_says_the_same() -> None:
    accepts = (
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
        "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    )

    async def story() -> None:
        async with served() as s:
            await s.client.create()
            plain = await s.client.get("/metrics")
            opened = await s.client.send("GET", "/metrics", headers=JSON | {"accept": accepts})
            assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert opened.headers["content-type"].startswith("application/openmetrics-text; vers")
            one, other = samples(read_text(plain.body)), samples(read_open_metrics(opened.body))
            differ = {name for name, _ in one.items() ^ other.items()}
            assert {name for name, _ in differ} <= {
                "trt_responses_cpu_seconds_total",
                "trt_responses_resident_bytes",
                "trt_responses_requests_total",
            }

    asyncio.run(story())


def test_nothing_that_a_client_writes_stands_in_it() -> None:
    odd = 'OdD"}\\ 1'

    async def story() -> None:
        async with served() as s:
            await s.client.create(model=odd, user=odd, metadata={odd: odd}, input=odd)
            await s.client.create(
                user=odd, metadata={odd: odd}, safety_identifier=odd, prompt_cache_key=odd
            )
            await s.client.create(tools=[{"type": "function", "name": "OdD", "parameters": {}}])
            await s.client.get("/OdD")
            await s.client.get("/v1/responses/OdD")
            await s.client.get("/v1/models/OdD")
            for method in ("ODD", "OdD"):
                await s.client.send(method, "/v1/models")
            headers = JSON | {"host": "OdD", "origin": "http://OdD", "user-agent": "OdD"}
            await s.client.send("GET", "/v1/models", headers=headers)
            body = (await s.client.get("/metrics")).body
            assert b"odd" not in body.lower()
            assert body.count(b"\n") < 800

    asyncio.run(story())


def test_it_passes_every_host_and_origin_and_asks_for_no_key() -> None:
    async def story() -> None:
        async with served(api_keys="ann:good") as s:
            for headers in ({"host": "10.1.2.3:8000"}, JSON | {"origin": "http://evil.example"}):
                assert (await s.client.send("GET", "/metrics", headers=headers)).status == 200
            assert (await s.client.send("POST", "/metrics")).status == 405

    asyncio.run(story())


def test_with_a_key_of_its_own_only_that_and_an_admins_are_let_in(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with changing(path) as write:
        write(
            [
                Key(owner="ann", name="plain", sha256=digest_of("plain")),
                Key(owner="ann", name="chief", sha256=digest_of("chief"), admin=True),
            ]
        )

    async def story() -> None:
        async with served(
            keys_file=path, data_dir=tmp_path, api_keys="bob:given", metrics_key="scraper"
        ) as s:
            for key, status in (
                *(("scraper", 200), ("chief", 200), ("plain", 401), ("given", 401)),
                *(("", 401), ("scraper ", 200), ("SCRAPER", 401), (digest_of("scraper"), 401)),
            ):
                headers = JSON | {"authorization": f"Bearer {key}"}
                call = await s.client.send("GET", "/metrics", headers=headers)
                assert call.status == status, key
            assert (await s.client.get("/metrics")).status == 401
            headers = JSON | {"authorization": "Bearer scraper"}
            assert (await s.client.send("GET", "/v1/models", headers=headers)).status == 401
            found = await scrape(s.client, authorization="Bearer chief")
            assert found.ours("keys") == 2
            assert found.ours("keys_file_fault") == 0

    asyncio.run(story())


def test_a_store_keeps_one_record_for_each_16_kib() -> None:
    async def story() -> None:
        async with served(ANSWER, store_bytes=3 * 16 * 1024) as s:
            for _ in range(5):
                assert (await s.client.create()).status == 200
            assert (await scrape(s.client)).ours("store_records") == 3

    asyncio.run(story())


def test_the_names_of_two_other_servers_say_what_ours_say() -> None:
    async def story() -> None:
        async with served() as s:
            await s.client.create()
            await s.client.create(max_output_tokens=4)
            found = await scrape(s.client)
        prefixes = {name.partition("_")[0].partition(":")[0] for name, _ in found.all}
        assert prefixes == {"trt", "trtllm", "vllm"}
        model = {"model_name": "demo"}
        for prefix in ("trtllm_", "vllm:"):
            success = f"{prefix}request_success_total"
            assert found.sum(success, finished_reason="stop", **model) == 1
            assert found.sum(success, finished_reason="length", **model) == 1
            for theirs, ours in (
                ("e2e_request_latency_seconds_count", found.ours("response_seconds_count")),
                ("time_to_first_token_seconds_sum", found.ours("first_token_seconds_sum")),
                ("prompt_tokens_total", found.ours("tokens_total", kind="prompt")),
                ("generation_tokens_total", found.ours("tokens_total", kind="generated")),
            ):
                assert found.sum(prefix + theirs, **model) == ours > 0, theirs

    asyncio.run(story())


def test_an_engine_that_is_lost_is_told_of() -> None:
    async def story() -> None:
        async with served() as s:
            s.burn_out()
            found = await scrape(s.client)
            assert found.ours("engine_ready") == found.ours("engine_alive") == 0

    asyncio.run(story())

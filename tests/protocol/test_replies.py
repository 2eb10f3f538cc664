"""What each endpoint answers when all goes well, key by key and header by header."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support import lawful
from tests.support.asgi import JSON, asked
from tests.support.served import ANSWER, CALL, THOUGHT, WEATHER, ids, served
from trt_responses.wire.fields import FIELDS
from trt_responses.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable
from tests.support.replies import check_headers, check_keys, check_streamed, without_ids

ODD = [
    *[("POST", "/", 405), ("GET", "/v1/nothing", 404), ("POST", "/v1/responses/", 404)],
    *[("GET", "/v1/responses", 405), ("PUT", "/v1/responses", 405), ("PUT", "/docs", 405)],
    *[("OPTIONS", "/v1/responses", 405), ("POST", "/v1/models", 405), ("TEAPOT", "/docs", 405)],
    *[("GET", "/v1/responses/", 404), ("GET", "/v1/responses/x", 404)],
    *[("GET", "/v1/responses/%00%ff%c3", 404), ("GET", "/v1/responses/a%2Fb", 404)],
    *[("GET", "/v1/responses/../models", 404), ("DELETE", "/v1/responses/x", 404)],
    *[("GET", "/v1/models/other", 404), ("GET", "/v1/models/a/b", 404)],
    ("GET", "/v1/responses/" + "x" * 60_000, 404),
]


def said(response: dict[str, Any]) -> list[tuple[str, str]]:
    """Each item's kind, and its text."""
    texts = []
    for item in response["output"]:
        parts = item.get("content") or [{"text": item.get("arguments", "")}]
        texts.append((item["type"], "".join(part["text"] for part in parts)))
    return texts


def test_a_plain_answer_has_every_key_and_the_models_words() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            call = await s.client.create(metadata={"a": "b"}, instructions="Be kind.")
            check_headers(call)
            assert (call.status, call.headers["content-type"]) == (200, "application/json")
            answer = call.json()
            check_keys(answer)
            assert answer["status"] == "completed"
            assert said(answer) == [
                ("reasoning", "They greet me."),
                ("message", "Hello there, friend."),
            ]
            assert (answer["metadata"], answer["instructions"]) == ({"a": "b"}, "Be kind.")
            usage = answer["usage"]
            assert usage["input_tokens"] == len(s.prompt())
            assert usage["output_tokens"] == len(ids(THOUGHT))
            assert usage["output_tokens_details"]["reasoning_tokens"] == len(ids("They greet me."))

    asyncio.run(story())


@pytest.mark.parametrize("most", [100, 16], ids=["whole", "cut"])
def test_the_last_step_of_the_engine_leaves_in_one_send_with_the_end(most: int) -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            call = await s.client.create(stream=True, max_output_tokens=most)
            *earlier, last = [heard.message["body"] for heard in call.heard[1:]]
            assert b"response.output_text.done" in last
            assert b'"status":"%b"' % (b"completed" if most == 100 else b"incomplete") in last
            assert sum(body.count(b"response.output_text.delta") > 0 for body in earlier) > 1

    asyncio.run(story())


@pytest.mark.parametrize("text", [ANSWER, THOUGHT, CALL], ids=["answer", "thought", "call"])
def test_a_stream_is_what_a_strict_client_takes_and_ends_in_the_plain_answer(text: str) -> None:
    async def story() -> None:
        async with served(text) as s:
            streamed = await s.client.create(stream=True, tools=[WEATHER])
            check_headers(streamed)
            last = check_streamed(streamed)
            lawful.check(streamed.events, last)
            plain = (await s.client.create(tools=[WEATHER])).json()
            assert without_ids(plain) == without_ids(last)
            kept = await s.client.get(f"/v1/responses/{last['id']}")
            check_headers(kept)
            assert kept.json() == last

    asyncio.run(story())


def test_each_step_of_the_engine_is_sent_in_the_step_in_which_it_came() -> None:
    async def story() -> None:
        async with served(ANSWER, manual=True) as s:
            call = s.client.ask(stream=True)
            await call.until(lambda c: len(c.heard) >= 2)  # headers, and the opening events
            while not call.ended:
                await s.clock.step()
            words = [
                (heard.step, heard.message["body"].count(b"output_text.delta"))
                for heard in call.heard[1:]
                if b"event: response.output_text.delta" in heard.message["body"]
            ]
            header = len(ids("<|channel|>final<|message|>"))
            text = len(ids("Hello there, friend."))
            assert [step for step, _ in words] == list(range(header + 1, header + text + 1))

    asyncio.run(story())


def test_a_deleted_response_is_gone_and_one_with_store_false_was_never_there() -> None:
    async def story() -> None:
        async with served() as s:
            first = (await s.client.create()).json()["id"]
            path = f"/v1/responses/{first}"
            gone = await s.client.send("DELETE", path)
            assert gone.json() == {"id": first, "object": "response", "deleted": True}
            for call in (await s.client.get(path), await s.client.send("DELETE", path)):
                assert (call.status, call.error["code"]) == (404, "not_found")
                check_headers(call)
            unkept = (await s.client.create(store=False)).json()
            assert unkept["store"] is False
            assert (await s.client.get(f"/v1/responses/{unkept['id']}")).status == 404

    asyncio.run(story())


def test_a_response_belongs_to_the_owner_of_the_key_that_made_it() -> None:
    async def story() -> None:
        async with served(api_keys="ann:k1,bob:k2") as s:
            ann, bob = (JSON | {"authorization": f"Bearer {key}"} for key in ("k1", "k2"))
            made = await s.client.send("POST", "/v1/responses", orjson.dumps(asked()), ann)
            path = f"/v1/responses/{made.json()['id']}"
            follow = orjson.dumps(asked(previous_response_id=made.json()["id"]))
            assert (await s.client.send("GET", path, headers=bob)).status == 404
            assert (await s.client.send("DELETE", path, headers=bob)).status == 404
            assert (await s.client.send("POST", "/v1/responses", follow, bob)).status == 404
            assert (await s.client.send("POST", "/v1/responses", follow, ann)).status == 200
            assert (await s.client.send("GET", path, headers=ann)).status == 200

    asyncio.run(story())


def test_models_are_listed_and_found_by_name() -> None:
    async def story() -> None:
        async with served() as s:
            listed = (await s.client.get("/v1/models")).json()
            assert [model["id"] for model in listed["data"]] == ["demo"]
            one = await s.client.get("/v1/models/demo")
            assert one.json() == listed["data"][0]
            check_headers(one)
            missing = await s.client.get("/v1/models/other")
            assert (missing.status, missing.error["code"]) == (404, "model_not_found")

    asyncio.run(story())


def test_health_follows_the_engine_and_the_drain() -> None:
    async def story() -> None:
        async with served() as s:
            statuses = []
            steps: tuple[Callable[[], None], ...] = (lambda: None, s.drain, s.burn_out)
            for change in steps:
                change()
                live, ready = [await s.client.get(f"/health/{name}") for name in ("live", "ready")]
                check_headers(ready)
                statuses.append((live.status, ready.status))
            assert statuses == [(200, 200), (200, 503), (503, 503)]
            assert "reason" in ready.json()

    asyncio.run(story())


def test_the_description_comes_from_the_models_that_parse_the_body() -> None:
    async def story() -> None:
        async with served() as s:
            call = await s.client.get("/openapi.json")
            check_headers(call)
            body = call.json()["components"]["schemas"]["CreateResponse"]
            assert set(body["required"]) == {"model", "input"}
            known = {path.partition(".")[0] for path in (f.path for f in FIELDS)}
            typed = set(body["properties"])
            assert typed <= known, "a field of the models stands in no row of the table"
            page = await s.client.get("/docs")
            check_headers(page)
            assert page.headers["content-type"].startswith("text/html")
            assert all(f"<code>{f.path}</code>" in page.body.decode() for f in FIELDS)

    asyncio.run(story())


def test_a_path_or_method_that_is_not_there_is_refused_in_the_apis_shape() -> None:
    async def story() -> None:
        async with served() as s:
            for method, path, status in ODD:
                call = await s.client.send(method, path)
                assert call.status == status, (method, path[:80])
                check_headers(call)
                assert call.error.keys() == {"message", "type", "param", "code"}
                assert call.error["type"] == "invalid_request_error"
                assert call.error["code"] not in (None, "server_error")
                assert ("allow" in call.headers) == (status == 405)
                assert len(call.body) < 1000

    asyncio.run(story())


def test_fields_that_are_ignored_are_named_in_a_header_that_a_client_cannot_forge() -> None:
    async def story() -> None:
        async with served() as s:
            sent = {"zzz": 1, "a\r\nset-cookie: x": 1, "名": 2, "user": "me", "reasoning": {"q": 1}}
            for stream in (False, True):
                call = await s.client.create(**sent, stream=stream)
                assert call.status == 200
                named = call.headers["x-trt-ignored"]
                assert named == "a%0D%0Aset-cookie%3A%20x, reasoning.q, user, zzz, %E5%90%8D"
            many = await s.client.create(**{f"field{n}": n for n in range(50)}, **{"x" * 9999: 1})
            assert many.headers["x-trt-ignored"].endswith("and 19 more")
            assert len(many.headers["x-trt-ignored"]) < 5000
            assert "x-trt-ignored" not in (await s.client.create()).headers

    asyncio.run(story())


def test_null_means_the_default_for_every_field() -> None:
    async def story() -> None:
        async with served() as s:
            names = set(Request.model_fields) - {"model", "input"}
            nulls = await s.client.create(**dict.fromkeys(names))
            assert nulls.status == 200
            assert "x-trt-ignored" not in nulls.headers
            options = s.last.options
            plain = await s.client.create()
            assert without_ids(nulls.json()) == without_ids(plain.json())
            assert s.prompt(-1) == s.prompt(-2)
            drop = {"arrival_ns": 0, "request_id": ""}
            assert _fields(options) | drop == _fields(s.last.options) | drop

    asyncio.run(story())


def _fields(options: object) -> dict[str, object]:
    return {name: getattr(options, name) for name in type(options).__dataclass_fields__}  # type: ignore[attr-defined]


def test_what_is_honoured_reaches_the_engine_and_is_echoed() -> None:
    async def story() -> None:
        async with served() as s:
            wanted = {
                "temperature": 0.5,
                "top_p": 0.25,
                "presence_penalty": -1.5,
                "frequency_penalty": 2,
            }
            ours = {"top_k": 7, "min_p": 0.125, "seed": 99}
            call = await s.client.create(**wanted, **ours, max_output_tokens=50)
            options = s.last.options
            for name, value in (wanted | ours).items():
                assert getattr(options, name) == value
            assert options.max_tokens == 50
            assert {name: call.json()[name] for name in wanted} == wanted
            assert call.json()["max_output_tokens"] == 50

    asyncio.run(story())


def test_a_budget_that_runs_out_makes_the_response_incomplete_in_both_modes() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            plain = (await s.client.create(max_output_tokens=12)).json()
            last = check_streamed(await s.client.create(max_output_tokens=12, stream=True))
            for response in (plain, last):
                assert response["status"] == "incomplete"
                assert response["incomplete_details"] == {"reason": "max_output_tokens"}
                assert response["usage"]["output_tokens"] == 12

    asyncio.run(story())


def test_a_body_may_come_in_pieces_and_without_a_length() -> None:
    async def story() -> None:
        async with served() as s:
            body = orjson.dumps(asked(input="Grüezi 🙂"))
            parts = [body[n : n + 3] for n in range(0, len(body), 3)]
            call = await s.client.send("POST", "/v1/responses", parts)
            assert call.status == 200
            assert "Grüezi 🙂" in s.prompt_text()

    asyncio.run(story())


def test_content_type_may_carry_a_charset_and_any_case() -> None:
    async def story() -> None:
        async with served() as s:
            headers = JSON | {"content-type": "Application/JSON; charset=utf-8"}
            call = await s.client.send("POST", "/v1/responses", orjson.dumps(asked()), headers)
            assert call.status == 200

    asyncio.run(story())

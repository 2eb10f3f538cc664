"""Compaction, by a trigger in a stream and by `/v1/responses/compact`; the SDK's types judge."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from openai.types.responses import ResponseCompactionItem, ResponseUsage

from tests.support.asgi import JSON, Call, until
from tests.support.compaction import judged, sealing
from tests.support.scripted.engine import Die, Script
from tests.support.served import (
    ANSWER,
    CALL,
    KEYED,
    STALLED,
    WEATHER,
    Served,
    ids,
    result,
    served,
)
from tests.support.sockets import connected

Json = dict[str, Any]

PATH = "/v1/responses/compact"
OPENED = ids("<|channel|>analysis<|message|>")
THOUGHT, TEXT = "They ask for it.<|end|>", "They want the weather of Bern.<|return|>"
SUMMARY = (THOUGHT, TEXT)
"""What is written of the two texts that the engine is asked for: a thought, and the answer."""
TRIGGER = {"type": "compaction_trigger"}
HISTORY: list[Json] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "What is the weather in Bern?"},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Bern"}'},
    result("c1", "Sunny, 21 degrees."),
]
ASIDE: list[Json] = [
    {"role": "assistant", "content": "An old answer that is long."},
    {"role": "user", "content": "And now?"},
]
NO_SUMMARY: dict[str, str | Script] = {
    "empty": "<|return|>",
    "blank": " \n<|return|>",
    "cut": Script((ids("Half of it"), *((i,) for i in ids(" word") * 5_000))),
}


async def compact(s: Served, **fields: object) -> Call:
    body = orjson.dumps({"model": "demo"} | fields)
    return await s.client.send("POST", PATH, body)


async def triggered(s: Served, items: list[Json], **fields: object) -> Json:
    """The compaction item that a stream gave."""
    made = await s.client.create(
        input=[*items, TRIGGER], stream=True, store=False, tools=[WEATHER], **fields
    )
    last = judged(made)
    assert last["status"] == "completed", last["error"]
    assert [event["type"] for event in made.events] == [
        *("response.created", "response.in_progress", "response.output_item.added"),
        *("response.compaction.compacting", "response.output_item.done", "response.completed"),
    ]
    (item,) = last["output"]
    assert item["type"] == "compaction"
    checked: Json = item
    return checked


def test_a_trigger_gives_one_item_and_the_prompt_begins_with_the_unchanged_one() -> None:
    async def story() -> None:
        async with sealing(ANSWER, *SUMMARY) as s:
            await s.client.create(input=HISTORY, tools=[WEATHER], store=False)
            item = await triggered(s, HISTORY, include=["reasoning.encrypted_content"])
            assert item["created_by"] == "summary"
            assert "Bern" not in item["encrypted_content"]
            before, asked = s.prompt(0), s.prompt(1)
            shared = len(before) - len(ids("<|start|>assistant"))
            assert asked[:shared] == before[:shared]
            assert s.prompt_text(1).endswith("<|start|>assistant<|channel|>analysis<|message|>")

    asyncio.run(story())


def test_an_engine_has_read_nearly_all_of_a_long_conversation_that_is_compacted() -> None:
    """What is asked of the model stands behind all of that, for a cache of prefixes to find."""

    async def story() -> None:
        long: list[Json] = []
        for number in range(40):
            text = f"Question {number}: " + "what is there to say of it, and of the next? " * 8
            long += [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
        long.append({"role": "user", "content": "Go on."})
        async with sealing(ANSWER, *SUMMARY) as s:
            await s.client.create(input=long, tools=[WEATHER], store=False)
            await s.client.create(input=[*long, TRIGGER], tools=[WEATHER], store=False)
            before, asked = s.prompt(0), s.prompt(1)
            known = next(n for n, (a, b) in enumerate(zip(before, asked, strict=False)) if a != b)
            assert 0.95 * len(asked) <= known < len(asked)

    asyncio.run(story())


def test_fed_back_it_is_answered_as_a_continuation_with_the_call_in_progress() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            item = await triggered(s, [*ASIDE, *HISTORY])
            kept = [HISTORY[0], ASIDE[1], HISTORY[1], item]
            made = await s.client.create(input=kept, tools=[WEATHER], store=False)
            assert made.json()["status"] == "completed"
            prompt = s.prompt_text()
            assert "They want the weather of Bern." in prompt
            assert "An old answer" not in prompt
            for text in ("Be brief.", "And now?", "What is the weather", "Sunny, 21 degrees."):
                assert prompt.count(text) == 1
            assert prompt.index("They want") < prompt.index('{"city":"Bern"}')
            assert prompt.endswith("<|start|>assistant")

    asyncio.run(story())


def test_what_a_client_left_in_before_it_is_not_shown_again() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            item = await triggered(s, [*ASIDE, *HISTORY])
            pruned = [ASIDE[1], HISTORY[0], HISTORY[1], item]
            await s.client.create(input=[*ASIDE, *HISTORY, item], tools=[WEATHER], store=False)
            whole = s.prompt()
            await s.client.create(input=pruned, tools=[WEATHER], store=False)
            assert s.prompt() == whole

    asyncio.run(story())


def test_a_call_that_has_no_result_yet_lives_in_the_item() -> None:
    async def story() -> None:
        async with sealing(CALL, *SUMMARY, ANSWER) as s:
            first = (await s.client.create(input="Weather?", tools=[WEATHER])).json()
            made = await s.client.create(
                input=[TRIGGER], previous_response_id=first["id"], tools=[WEATHER], store=False
            )
            (item,) = made.json()["output"]
            call_id = first["output"][-1]["call_id"]
            again = await s.client.create(
                input=[item, result(call_id, "It rains.")], tools=[WEATHER], store=False
            )
            assert again.status == 200
            assert "It rains." in s.prompt_text()

    asyncio.run(story())


def test_a_stored_one_is_continued_by_its_id() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            made = await s.client.create(input=[*ASIDE, *HISTORY, TRIGGER], tools=[WEATHER])
            again = await s.client.create(
                input="Go on.", previous_response_id=made.json()["id"], tools=[WEATHER]
            )
            assert again.status == 200
            prompt = s.prompt_text()
            assert "They want" in prompt
            assert "An old answer" not in prompt
            assert prompt.count("Sunny") == 1
            items = await s.client.get(f"/v1/responses/{made.json()['id']}/input_items")
            assert TRIGGER["type"] not in [item["type"] for item in items.json()["data"]]
            got = await s.client.get(f"/v1/responses/{made.json()['id']}")
            assert got.json() == made.json()

    asyncio.run(story())


def test_a_second_compaction_stands_for_the_first() -> None:
    async def story() -> None:
        second = TEXT.replace("weather of Bern", "second thing")
        async with sealing(*SUMMARY, THOUGHT, second, ANSWER) as s:
            item = await triggered(s, HISTORY)
            newer = await triggered(s, [HISTORY[1], item, *ASIDE])
            assert "They want the weather of Bern." in s.prompt_text()
            await s.client.create(input=[HISTORY[1], item, ASIDE[1], newer], store=False)
            assert "second thing" in s.prompt_text()
            assert "weather of Bern" not in s.prompt_text()

    asyncio.run(story())


@pytest.mark.parametrize("kind", NO_SUMMARY)
def test_what_is_no_summary_never_becomes_one(kind: str) -> None:
    async def story() -> None:
        async with sealing(THOUGHT, NO_SUMMARY[kind], ANSWER) as s:
            item = await triggered(s, [*ASIDE, *HISTORY])
            assert item["created_by"] == "extract"
            await s.client.create(input=[item], store=False)
            prompt = s.prompt_text()
            assert "could not be summarised" in prompt
            assert "User: What is the weather in Bern?" in prompt
            assert 'Call: weather {"city":"Bern"}' in prompt
            assert "Half of it" not in prompt
            assert "They ask for it" not in prompt

    asyncio.run(story())


def test_a_compaction_whose_engine_dies_fails_and_gives_no_item() -> None:
    async def story() -> None:
        async with sealing(Script((Die("burnt"),))) as s:
            made = await s.client.create(input=[*HISTORY, TRIGGER], stream=True, store=False)
            assert made.events[-1]["type"] == "response.failed"
            assert made.events[-1]["response"]["output"] == []
            assert (await compact(s, input=HISTORY)).status >= 500

    asyncio.run(story())


@pytest.mark.parametrize("path", ["/v1/responses", PATH])
def test_a_client_that_leaves_ends_it(path: str) -> None:
    async def story() -> None:
        async with sealing(STALLED) as s:
            body = {"model": "demo", "input": [*HISTORY, TRIGGER]}
            call = s.client.open("POST", path, orjson.dumps(body))
            await until(lambda: bool(s.engine.requests))
            call.hang_up()
            await call.done()
            assert s.last.state == "aborted"
            assert len(s.runs) == 0

    asyncio.run(story())


def test_over_a_websocket_it_is_the_same() -> None:
    async def story() -> None:
        async with (
            sealing(ANSWER, *SUMMARY, ANSWER) as s,
            connected(s.app) as socket,
        ):
            first = (await socket.answer(input=HISTORY, store=False))[-1]["response"]
            frames = await socket.answer(
                input=[TRIGGER], previous_response_id=first["id"], store=False
            )
            (item,) = frames[-1]["response"]["output"]
            assert item["type"] == "compaction"
            again = await socket.answer(
                input="Go on.", previous_response_id=frames[-1]["response"]["id"], store=False
            )
            assert again[-1]["type"] == "response.completed"
            assert "They want" in s.prompt_text()

    asyncio.run(story())


# --- /v1/responses/compact --------------------------------------------------------------------


def test_the_endpoint_gives_the_users_messages_and_one_item_and_keeps_nothing() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            made = (await compact(s, input=[*ASIDE, *HISTORY], tools=[WEATHER])).json()
            ResponseCompactionItem.model_validate(made["output"][-1], strict=True)
            ResponseUsage.model_validate(made["usage"], strict=True)
            said = [item["content"][0]["text"] for item in made["output"][:-1]]
            assert said == ["And now?", "What is the weather in Bern?"]
            assert all(item["id"] and item["status"] for item in made["output"][:-1])
            assert made["output"][-1]["type"] == "compaction"
            assert made["usage"]["input_tokens"] == len(s.prompt(0)) - len(OPENED)
            assert (await s.client.get(f"/v1/responses/{made['id']}")).status == 404
            again = await s.client.create(
                input=[*made["output"], {"role": "user", "content": "Thanks."}], store=False
            )
            assert again.status == 200
            assert "They want" in s.prompt_text()

    asyncio.run(story())


def test_a_stored_response_can_be_compacted_by_its_id() -> None:
    async def story() -> None:
        async with sealing(ANSWER, *SUMMARY) as s:
            first = (await s.client.create(input="Hello")).json()
            made = (await compact(s, previous_response_id=first["id"])).json()
            kinds = [item["type"] for item in made["output"]]
            assert kinds == ["message", "compaction"]

    asyncio.run(story())


# --- refusals ---------------------------------------------------------------------------------

OTHER_KEY = {"seal_keys": "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI="}


@pytest.mark.parametrize("what", ["owner", "model", "key", "changed"])
def test_an_item_opens_for_its_owner_and_model_alone(what: str) -> None:
    async def story() -> None:
        keys: Json = {"api_keys": "ann:a-key,bob:b-key"}
        ann, bob = ({"authorization": f"Bearer {key}"} for key in ("a-key", "b-key"))
        body = {"model": "demo", "store": False}
        async with sealing(*SUMMARY, **keys) as s:
            asked = orjson.dumps(body | {"input": [*HISTORY, TRIGGER]})
            made = await s.client.send("POST", "/v1/responses", asked, JSON | ann)
            (item,) = made.json()["output"]
        changed: Json = {"model": {"model": "other"}, "key": OTHER_KEY}.get(what, {})
        if what == "changed":
            content = item["encrypted_content"]
            item["encrypted_content"] = content[:40] + ("A" if content[40] != "A" else "B")
            item["encrypted_content"] += content[41:]
        async with served(ANSWER, **(keys | KEYED | changed)) as s:
            model = {"model": changed.get("model", "demo")}
            asked = orjson.dumps(body | model | {"input": [HISTORY[1], item]})
            headers = JSON | (bob if what == "owner" else ann)
            refused = await s.client.send("POST", "/v1/responses", asked, headers)
            assert refused.status == 400
            assert refused.error["code"] == "invalid_encrypted_content"
            assert refused.error["param"] == "input[1].encrypted_content"

    asyncio.run(story())


HELLO = {"role": "user", "content": "Hello"}
SEALED = {"type": "compaction", "encrypted_content": "x"}
BAD: list[tuple[str, Json, str | None, str | None]] = [
    ("/v1/responses", {"input": [TRIGGER]}, "invalid_value", "input"),
    ("/v1/responses", {"input": [TRIGGER, HELLO]}, "invalid_value", "input[0]"),
    ("/v1/responses", {"input": [HELLO, TRIGGER, TRIGGER]}, "invalid_value", "input[1]"),
    (
        "/v1/responses",
        {"input": [SEALED]},
        "invalid_encrypted_content",
        "input[0].encrypted_content",
    ),
    (
        "/v1/responses",
        {"input": [SEALED | {"encrypted_content": "trtr1_AAAA"}]},
        "invalid_encrypted_content",
        "input[0].encrypted_content",
    ),
    (
        "/v1/responses",
        {"input": [SEALED | {"encrypted_content": "trtc1_AAAA"}]},
        "invalid_encrypted_content",
        "input[0].encrypted_content",
    ),
    (
        "/v1/responses",
        {"input": [SEALED | {"encrypted_content": "trtc1_é"}]},
        "invalid_encrypted_content",
        "input[0].encrypted_content",
    ),
    (
        "/v1/responses",
        {"input": [{"type": "compaction"}]},
        "missing_required_parameter",
        "input[0].encrypted_content",
    ),
    (
        "/v1/responses",
        {"input": [SEALED | {"encrypted_content": ""}]},
        "invalid_value",
        "input[0].encrypted_content",
    ),
    (
        "/v1/responses",
        {"input": [SEALED | {"encrypted_content": None}]},
        "invalid_value",
        "input[0].encrypted_content",
    ),
    ("/v1/responses", {"input": [SEALED | {"id": 7}, HELLO]}, "invalid_value", "input[0].id"),
    ("/v1/responses", {"input": [HELLO, TRIGGER | {"id": 7}]}, "invalid_value", "input[1].id"),
    ("/v1/responses", {"input": [HELLO, {"type": "compact"}]}, "invalid_value", "input[1]"),
    (PATH, {}, "invalid_value", "input"),
    (PATH, {"input": []}, "invalid_value", "input"),
    (PATH, {"input": None}, "invalid_value", "input"),
    (PATH, {"input": [TRIGGER]}, "invalid_value", "input"),
    (PATH, {"input": 7}, "invalid_value", "input"),
    (PATH, {"input": [HELLO], "model": None}, "invalid_value", "model"),
    (PATH, {"input": [SEALED]}, "invalid_encrypted_content", "input[0].encrypted_content"),
    (PATH, {"input": [HELLO], "tools": "x"}, "invalid_value", "tools"),
    (PATH, {"input": [HELLO], "background": True}, "unsupported_parameter", "background"),
    (PATH, {"input": [HELLO], "previous_response_id": 7}, "invalid_value", "previous_response_id"),
    (PATH, {"input": [HELLO], "instructions": 7}, "invalid_value", "instructions"),
    (PATH, {"input": "word " * 200_000}, "context_length_exceeded", "input"),
]


@pytest.mark.parametrize(("path", "fields", "code", "param"), BAD)
def test_a_bad_request_is_refused_by_name(
    path: str, fields: Json, code: str | None, param: str | None
) -> None:
    async def story() -> None:
        async with sealing() as s:
            body = orjson.dumps({"model": "demo"} | fields)
            refused = await s.client.send("POST", path, body)
            assert (refused.status, refused.error["code"]) == (400, code), refused.error
            assert refused.error["param"] == param
            assert not s.engine.requests

    asyncio.run(story())


REFUSED: list[tuple[bytes | Json, int, str, str | None]] = [
    (b"", 400, "invalid_json", None),
    (b"{", 400, "invalid_json", None),
    (b"[]", 400, "invalid_value", None),
    ({"model": "other"}, 404, "model_not_found", "model"),
    ({"model": ""}, 400, "invalid_value", "model"),
    ({"input": [{"role": "king", "content": "x"}]}, 400, "invalid_value", "input[0].role"),
    ({"input": [{"role": "user"}]}, 400, "missing_required_parameter", "input[0].content"),
    ({"input": [{"type": "nonsense"}]}, 400, "invalid_value", "input[0]"),
    ({"input": [result("c9")]}, 400, "unknown_call_id", "input[0].call_id"),
    (
        {"previous_response_id": "resp_abc"},
        404,
        "previous_response_not_found",
        "previous_response_id",
    ),
    ({"tools": [{"type": "function"}]}, 400, "missing_required_parameter", "tools[0].name"),
    ({"tools": [{"type": "function", "name": "a b"}]}, 400, "invalid_value", "tools[0].name"),
    ({"metadata": {"k": 7}}, 400, "invalid_value", "metadata.k"),
    ({"reasoning": {"effort": "huge"}}, 400, "invalid_value", "reasoning.effort"),
    ({"temperature": 9}, 400, "invalid_value", "temperature"),
    ({"parallel_tool_calls": "x"}, 400, "invalid_value", "parallel_tool_calls"),
    ({"text": "x"}, 400, "invalid_value", "text"),
    ({"prompt": {"id": "p"}}, 400, "unsupported_parameter", "prompt"),
    ({"prompt_cache_key": 7}, 400, "invalid_value", "prompt_cache_key"),
    ({"conversation": "conv_x"}, 400, "unsupported_parameter", "conversation"),
]


def test_the_endpoint_refuses_what_is_malformed_with_its_status_code_and_place() -> None:
    async def story() -> None:
        async with sealing() as s:
            for fields, status, code, param in REFUSED:
                whole = {"model": "demo", "input": [HELLO]}
                body = fields if isinstance(fields, bytes) else orjson.dumps(whole | fields)
                refused = await s.client.send("POST", PATH, body)
                told = (refused.status, refused.error["code"], refused.error["param"])
                assert told == (status, code, param), fields
            assert not s.engine.requests

    asyncio.run(story())


def test_a_trigger_is_no_item_of_a_conversation() -> None:
    async def story() -> None:
        async with sealing() as s:
            body = orjson.dumps({"items": [HELLO, TRIGGER]})
            refused = await s.client.send("POST", "/v1/conversations", body)
            assert refused.error["param"] == "items[1]"

    asyncio.run(story())

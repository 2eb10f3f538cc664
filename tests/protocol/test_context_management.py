"""A conversation that is compacted before it is answered, by a threshold; the SDK's types judge."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import orjson
import pytest

from tests.support.asgi import JSON, Call, until
from tests.support.background import cancelled, started
from tests.support.compaction import judged, sealing
from tests.support.scripted.engine import Die, Script
from tests.support.served import (
    ANSWER,
    CALL,
    STALLED,
    WEATHER,
    Served,
    ids,
    result,
)
from tests.support.sockets import connected
from tests.support.ticks import settled
from trt_responses.features.compaction.compaction import Compaction

Json = dict[str, Any]

THOUGHT, TEXT = "What matters?<|end|>", "The goal: weather of Bern.<|return|>"
SUMMARY = (THOUGHT, TEXT)
"""What is written of the two texts that the engine is asked for: a thought, and the answer."""
AT = [{"type": "compaction", "compact_threshold": 1000}]
LONG = "An old answer, which says much of many things. " * 120
OLD: list[Json] = [
    {"role": "user", "content": "What do you know of Bern?"},
    {"role": "assistant", "content": LONG},
]
QUESTION = {"role": "user", "content": "And the weather there?"}
TALK = [*OLD, QUESTION]
OPENED = len(ids("<|start|>assistant"))
FORCED = len(ids("<|channel|>analysis<|message|>"))
"""The beginning of a thought, which counts as written."""


async def answered(s: Served, **fields: object) -> Json:
    """The response that a stream gave, judged event by event."""
    return judged(await s.client.create(stream=True, context_management=AT, **fields))


def kinds(response: Json) -> list[str]:
    return [item["type"] for item in response["output"]]


def test_the_item_comes_first_and_the_answer_goes_on_from_it() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            made = await s.client.create(input=TALK, stream=True, context_management=AT)
            told = [(e["type"], e.get("output_index")) for e in made.events]
            assert told[:8] == [
                ("response.created", None),
                ("response.in_progress", None),
                ("response.output_item.added", 0),
                ("response.compaction.compacting", 0),
                ("response.output_item.done", 0),
                ("response.output_item.added", 1),
                ("response.content_part.added", 1),
                ("response.output_text.delta", 1),
            ]
            last = made.events[-1]["response"]
            assert kinds(last) == ["compaction", "message"]
            assert last["output"][0]["created_by"] == "summary"
            prompt = s.prompt_text()
            assert "An old answer" not in prompt
            texts = [OLD[0]["content"], "The goal: weather of Bern.", QUESTION["content"]]
            places = [prompt.index(text) for text in texts]
            assert places == sorted(places)
            assert prompt.endswith(f"{QUESTION['content']}<|end|><|start|>assistant")

    asyncio.run(story())


def test_an_engine_has_read_nearly_all_that_the_summary_is_made_of() -> None:
    async def story() -> None:
        long = [dict(item) for _ in range(6) for item in OLD]
        async with sealing(ANSWER, *SUMMARY, ANSWER) as s:
            asked: Json = {"tools": [WEATHER], "store": False}
            await s.client.create(input=[*long, QUESTION], **asked)
            await answered(s, input=[*long, QUESTION], **asked)
            before, summary = s.prompt(0), s.prompt(1)
            pairs = enumerate(zip(before, summary, strict=False))
            known = next(place for place, (a, b) in pairs if a != b)
            assert 0.95 * len(summary) <= known < len(summary)

    asyncio.run(story())


def test_a_stored_one_goes_on_from_its_own_prompt() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            first = await answered(s, input=TALK)
            before = s.prompt()
            again = await s.client.create(
                input="Thanks.", previous_response_id=first["id"], context_management=AT
            )
            assert kinds(again.json()) == ["message"]
            known = len(before) - OPENED
            assert s.prompt()[:known] == before[:known]
            assert s.prompt_text().endswith("Thanks.<|end|><|start|>assistant")
            assert (await s.client.get(f"/v1/responses/{first['id']}")).json() == first

    asyncio.run(story())


def test_a_client_may_drop_all_that_stands_before_the_item() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            made = await answered(s, input=TALK, store=False)
            more: list[Json] = [*made["output"], {"role": "user", "content": "Thanks."}]
            await s.client.create(input=[*TALK, *more], store=False)
            whole = s.prompt()
            await s.client.create(input=more, store=False)
            assert s.prompt() == whole
            assert s.prompt_text().count(QUESTION["content"]) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    ("items", "managed"),
    [
        (TALK, [{"type": "compaction", "compact_threshold": 100_000}]),
        (TALK, [{"type": "compaction", "compact_threshold": None}]),
        (TALK, [{"type": "compaction"}]),
        (TALK, []),
        (TALK, None),
        ([{"role": "user", "content": LONG}, QUESTION], AT),
        ([{"role": "developer", "content": LONG}, QUESTION], AT),
    ],
    ids=["below", "null", "default", "empty", "none", "users only", "developers only"],
)
def test_what_need_not_be_shortened_or_cannot_be_is_left_as_it_is(
    items: list[Json], managed: object
) -> None:
    async def story() -> None:
        async with sealing(ANSWER) as s:
            made = await s.client.create(input=items, context_management=managed)
            assert kinds(made.json()) == ["message"]
            assert "x-trt-ignored" not in made.headers
            plain = await s.client.create(input=items)
            assert s.prompt(0) == s.prompt(1)
            assert made.json()["usage"] == plain.json()["usage"]

    asyncio.run(story())


def test_without_a_number_it_is_three_quarters_of_the_context() -> None:
    async def story() -> None:
        for context, shortened in ((1500, True), (4000, False)):
            async with sealing(*SUMMARY, ANSWER, context_tokens=context) as s:
                managed = [{"type": "compaction"}]
                made = await s.client.create(input=TALK, context_management=managed)
                assert (kinds(made.json())[0] == "compaction") is shortened

    asyncio.run(story())


def test_a_call_in_progress_and_its_result_survive_word_for_word() -> None:
    async def story() -> None:
        async with sealing(CALL, *SUMMARY, ANSWER) as s:
            first = (await s.client.create(input=TALK, tools=[WEATHER])).json()
            call = first["output"][-1]
            made = await answered(
                s,
                input=[result(call["call_id"], "It rains.")],
                previous_response_id=first["id"],
                tools=[WEATHER],
            )
            assert kinds(made) == ["compaction", "message"]
            prompt = s.prompt_text()
            for text in ("I need the weather.", '{"city": "Bern"}', "It rains."):
                assert prompt.count(text) == 1
            assert prompt.index("The goal:") < prompt.index('{"city": "Bern"}')
            assert "An old answer" not in prompt

    asyncio.run(story())


def test_a_second_one_keeps_what_users_said_before_the_first() -> None:
    async def story() -> None:
        long = f"<|channel|>final<|message|>{LONG}<|return|>"
        second = TEXT.replace("The goal", "The newest goal")
        async with sealing(*SUMMARY, long, THOUGHT, second, ANSWER) as s:
            rules = {"role": "developer", "content": "Speak as a sailor."}
            first = await answered(s, input=[rules, *TALK])
            made = await answered(s, input="And in Thun?", previous_response_id=first["id"])
            assert kinds(made) == ["compaction", "message"]
            prompt = s.prompt_text()
            assert "The goal:" not in prompt
            assert LONG not in prompt
            said = [rules["content"], *(item["content"] for item in (OLD[0], QUESTION))]
            order = [prompt.index(text) for text in (*said, "The newest goal", "And in Thun?")]
            assert order == sorted(order)

    asyncio.run(story())


def test_the_oldest_that_users_said_gives_way_and_rules_stay() -> None:
    async def story() -> None:
        rules = {"role": "developer", "content": "Speak as a sailor."}
        old = {"role": "user", "content": "The oldest. " + "word " * 400}
        new = {"role": "user", "content": "The newer. " + "word " * 300}
        async with sealing(*SUMMARY, ANSWER) as s:
            await answered(s, input=[rules, old, OLD[1], new, OLD[1], QUESTION])
            prompt = s.prompt_text()
            assert "The oldest." not in prompt
            for text in ("Speak as a sailor.", "The newer.", QUESTION["content"]):
                assert prompt.count(text) == 1

    asyncio.run(story())


def test_what_truncation_left_out_comes_back_only_where_it_fits() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER, context_tokens=4000) as s:
            turn = [{"role": "user", "content": "word " * 100}, OLD[1] | {"content": "Yes."}]
            talk = [*(turn * 30), {"role": "user", "content": "last " * 2800}]
            managed = [{"type": "compaction", "compact_threshold": 3000}]
            made = await s.client.create(input=talk, truncation="auto", context_management=managed)
            assert made.status == 200, made.body
            assert kinds(made.json()) == ["compaction", "message"]

    asyncio.run(story())


@pytest.mark.parametrize("written", ["<|return|>", " \n<|return|>"], ids=["empty", "blank"])
def test_what_is_no_summary_is_an_extract_and_the_answer_comes(written: str) -> None:
    async def story() -> None:
        async with sealing(THOUGHT, written, ANSWER) as s:
            made = await answered(s, input=TALK)
            assert made["status"] == "completed"
            assert made["output"][0]["created_by"] == "extract"
            assert "could not be summarised" in s.prompt_text()

    asyncio.run(story())


def test_without_room_for_a_summary_nothing_is_asked_and_an_extract_is_used() -> None:
    async def story() -> None:
        async with sealing(ANSWER) as probe:
            await probe.client.create(input=TALK)
            length = len(probe.prompt())
        async with sealing(ANSWER, context_tokens=length + 20) as s:
            made = await answered(s, input=TALK)
            assert made["output"][0]["created_by"] == "extract"
            assert len(s.engine.requests) == 1

    asyncio.run(story())


def test_usage_counts_both_turns_and_tells_them_apart() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            used = (await answered(s, input=TALK))["usage"]
            into, out = used["input_tokens_details"], used["output_tokens_details"]
            first, last = into["input_tokens_per_turn"]
            assert last == len(s.prompt())
            assert first > last
            assert used["input_tokens"] == first + last
            assert sum(out["output_tokens_per_turn"]) == used["output_tokens"]
            assert out["output_tokens_per_turn"][1] == len(ids(ANSWER))
            assert used["total_tokens"] == used["input_tokens"] + used["output_tokens"]

    asyncio.run(story())


def test_logprobs_and_tools_of_the_answer_are_as_ever() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            made = await answered(
                s, input=TALK, include=["message.output_text.logprobs"], top_logprobs=1
            )
            (part,) = made["output"][1]["content"]
            assert "".join(one["token"] for one in part["logprobs"]) == part["text"]
            assert [r.options.logprobs for r in s.engine.requests] == [None, None, 1]

    asyncio.run(story())


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_dies_in_the_summary_fails_the_response(*, stream: bool) -> None:
    async def story() -> None:
        async with sealing(Script((Die("burnt"),))) as s:
            made = await s.client.create(input=TALK, stream=stream, context_management=AT)
            if stream:
                assert made.events[-1]["type"] == "response.failed"
                assert made.events[-1]["response"]["output"] == []
            else:
                assert made.status >= 500
            assert len(s.runs) == 0

    asyncio.run(story())


@pytest.mark.parametrize("stage", ["summary", "answer"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_it(stage: str, *, stream: bool) -> None:
    async def story() -> None:
        scripts = (STALLED,) if stage == "summary" else (*SUMMARY, STALLED)
        async with sealing(*scripts) as s:
            body = {"model": "demo", "input": TALK, "stream": stream, "context_management": AT}
            call = s.client.open("POST", "/v1/responses", orjson.dumps(body))
            await until(lambda: len(s.engine.requests) == len(scripts))
            call.hang_up()
            await call.done()
            assert s.last.state == "aborted"
            assert len(s.runs) == 0

    asyncio.run(story())


def test_usage_of_one_that_is_cancelled_in_the_summary_is_what_was_read() -> None:
    async def story() -> None:
        async with sealing(STALLED) as s:
            job = await started(s, input=TALK, context_management=AT)
            await until(lambda: len(s.engine.requests) == 1)
            usage = (await cancelled(s, job["id"])).json()["usage"]
            assert usage["input_tokens"] == len(s.prompt()) - FORCED

    asyncio.run(story())


def test_what_is_remembered_under_a_key_is_not_what_was_made_short() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            body = {"model": "demo", "input": TALK, "context_management": AT}
            headers = JSON | {"idempotency-key": "k"}
            made = await s.client.send("POST", "/v1/responses", orjson.dumps(body), headers)
            assert kinds(made.json()) == ["compaction", "message"]
            await settled()
            gc.collect()
            assert not [each for each in gc.get_objects() if isinstance(each, Compaction)]

    asyncio.run(story())


def test_a_stop_ends_the_summary_of_what_is_made_under_a_key() -> None:
    async def story() -> None:
        async with sealing(STALLED) as s:
            body = {"model": "demo", "input": TALK, "context_management": AT}
            headers = JSON | {"idempotency-key": "k"}
            call = s.client.open("POST", "/v1/responses", orjson.dumps(body), headers)
            await until(lambda: len(s.engine.requests) == 1)
        await call.done()
        assert s.last.state == "aborted"

    asyncio.run(story())


def test_over_a_websocket_and_in_the_background_it_is_the_same() -> None:
    async def story() -> None:
        async with (
            sealing(*SUMMARY, ANSWER, *SUMMARY, ANSWER) as s,
            connected(s.app) as socket,
        ):
            frames = await socket.answer(input=TALK, store=False, context_management=AT)
            last = frames[-1]["response"]
            assert kinds(last) == ["compaction", "message"]
            again = await socket.answer(
                input="Thanks.", previous_response_id=last["id"], store=False
            )
            assert again[-1]["type"] == "response.completed"
            assert "An old answer" not in s.prompt_text()
        async with sealing(*SUMMARY, ANSWER) as s:
            made = await answered(s, input=TALK, background=True)
            assert kinds(made) == ["compaction", "message"]
            assert (await s.client.get(f"/v1/responses/{made['id']}")).json() == made

    asyncio.run(story())


def test_a_warm_up_reads_the_prompt_and_compacts_nothing() -> None:
    async def story() -> None:
        async with sealing(ANSWER) as s, connected(s.app) as socket:
            frames = await socket.answer(input=TALK, generate=False, context_management=AT)
            assert frames[-1]["response"]["output"] == []
            assert "An old answer" in s.prompt_text()

    asyncio.run(story())


def test_in_a_conversation_the_item_is_added_and_hides_what_came_before() -> None:
    async def story() -> None:
        async with sealing(*SUMMARY, ANSWER) as s:
            body = orjson.dumps({"items": OLD})
            talk = (await s.client.send("POST", "/v1/conversations", body)).json()["id"]
            await answered(s, input=[QUESTION], conversation=talk)
            listed = await s.client.get(f"/v1/conversations/{talk}/items?order=asc")
            told = [item["type"] for item in listed.json()["data"]]
            assert told == ["message", "message", "message", "compaction", "message"]
            await s.client.create(input="Thanks.", conversation=talk)
            assert "An old answer" not in s.prompt_text()
            assert s.prompt_text().count(QUESTION["content"]) == 1

    asyncio.run(story())


def test_the_item_opens_for_its_owner_alone() -> None:
    async def story() -> None:
        keys: Json = {"api_keys": "ann:a-key,bob:b-key"}
        async with sealing(*SUMMARY, ANSWER, **keys) as s:

            async def ask(key: str, **fields: object) -> Call:
                body = orjson.dumps({"model": "demo", "store": False} | fields)
                headers = JSON | {"authorization": f"Bearer {key}"}
                return await s.client.send("POST", "/v1/responses", body, headers)

            made = (await ask("a-key", input=TALK, context_management=AT)).json()
            item = made["output"][0]
            assert "Bern" not in item["encrypted_content"]
            refused = await ask("b-key", input=[item, QUESTION])
            assert refused.status == 400
            assert refused.error["code"] == "invalid_encrypted_content"
            assert refused.error["param"] == "input[0].encrypted_content"
            assert (await ask("a-key", input=[item, QUESTION])).status == 200

    asyncio.run(story())


BAD: list[tuple[object, str, str]] = [
    (7, "invalid_value", "context_management"),
    ("compaction", "invalid_value", "context_management"),
    ({"type": "compaction"}, "invalid_value", "context_management"),
    ([7], "invalid_value", "context_management[0]"),
    ([None], "invalid_value", "context_management[0]"),
    ([{}], "missing_required_parameter", "context_management[0].type"),
    ([{"type": "clear_tool_uses"}], "invalid_value", "context_management[0].type"),
    ([{"type": None}], "invalid_value", "context_management[0].type"),
    (
        [{"type": "compaction", "compact_threshold": 999}],
        "invalid_value",
        "context_management[0].compact_threshold",
    ),
    (
        [{"type": "compaction", "compact_threshold": "1000"}],
        "invalid_value",
        "context_management[0].compact_threshold",
    ),
    (
        [{"type": "compaction", "compact_threshold": 1000.5}],
        "invalid_value",
        "context_management[0].compact_threshold",
    ),
    (
        [{"type": "compaction", "compact_threshold": 2**53}],
        "invalid_value",
        "context_management[0].compact_threshold",
    ),
    ([*AT, *AT], "invalid_value", "context_management"),
]


@pytest.mark.parametrize(("managed", "code", "param"), BAD, ids=range(len(BAD)))
def test_a_bad_shape_is_refused_by_name(managed: object, code: str, param: str) -> None:
    async def story() -> None:
        async with sealing() as s, connected(s.app) as socket:
            refused = await s.client.create(input=TALK, context_management=managed)
            assert (refused.status, refused.error["code"]) == (400, code)
            assert refused.error["param"] == param
            (frame,) = await socket.answer(input=TALK, context_management=managed)
            assert (frame["status"], frame["error"]["code"]) == (400, code)
            assert frame["error"]["param"] == param
            assert not s.engine.requests

    asyncio.run(story())

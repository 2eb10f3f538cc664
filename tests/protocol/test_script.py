"""A server whose model is a script: what clients of each API get, and the faults on demand."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from tests.support.asgi import JSON, Client, living
from tests.support.lawful import check
from trt_responses import Settings, create_app
from trt_responses.features.script.engine import ScriptEngine
from trt_responses.features.script.malformed import SHAPES, malformed
from trt_responses.features.script.rules import script_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    Json = dict[str, Any]

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "get_weather", "parameters": CITY}
MAIL = {
    "type": "function",
    "name": "send_email",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"to": {"type": "string"}},
        "required": ["to"],
        "additionalProperties": False,
    },
}
COUNT = {
    "type": "json_schema",
    "name": "count",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    },
}


@asynccontextmanager
async def scripted(*rules: Mapping[str, Any], **settings: Any) -> AsyncIterator[Client]:
    """A server that plays these rules, or by itself."""
    named = {"engine": "script://auto", "model": "demo", "store": "memory://"}
    own = Settings(**named | settings)
    app = create_app(own)
    if rules:
        script = app.state.server.of(ScriptEngine).script
        script.rules = script_of(rules, "given").rules
    async with living(app):
        yield Client(app)


def played(story: Callable[[Client], Awaitable[None]], *rules: Json, **settings: Any) -> None:
    async def run() -> None:
        async with scripted(*rules, **settings) as client:
            await story(client)

    asyncio.run(run())


def texts(response: Json) -> list[str]:
    return [
        item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        for item in response["output"]
    ]


def test_by_itself_it_calls_the_nearest_tool_and_tells_its_result() -> None:
    async def story(client: Client) -> None:
        first = (await client.create(input="The weather in Bern?", tools=[MAIL, WEATHER])).json()
        [call] = first["output"]
        assert (call["name"], call["arguments"]) == ("get_weather", '{"city": "Bern"}')
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "18"}
        told = await client.create(previous_response_id=first["id"], input=[result])
        assert texts(told.json()) == ["get_weather returned: 18"]
        assert texts((await client.create(input="Hello")).json()) == ["You wrote: Hello"]

    played(story)


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "name": "send_email"}], ids=["any", "one"]
)
def test_a_call_that_is_forced_is_made(choice: object) -> None:
    async def story(client: Client) -> None:
        body = {"input": "Mail 'Olga'", "tools": [MAIL, WEATHER], "tool_choice": choice}
        call = (await client.create(**body)).json()["output"][-1]
        assert (call["name"], call["arguments"]) == ("send_email", '{"to": "Olga"}')

    played(story)


def test_a_format_is_filled_and_a_strict_tool_is_held_to_its_schema() -> None:
    async def story(client: Client) -> None:
        answer = (await client.create(input="Give me 7", text={"format": COUNT})).json()
        assert orjson.loads(texts(answer)[-1]) == {"n": 7}
        call = (await client.create(input="Email 'Wei'", tools=[MAIL])).json()["output"][-1]
        assert call["arguments"] == '{"to": "Wei"}'

    played(story)


ADDRESS = {"type": "string", "pattern": r"^[^@\s]+@[^@\s]+\.com$"}
NO_WORD = {"type": "string", "pattern": r"^[^a-z\d]{3}$"}
UNLIKE = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": True}


@pytest.mark.parametrize(
    ("properties", "required"),
    [
        ({"a": ADDRESS, "b": NO_WORD}, ["a", "b"]),
        ({"a": {"type": "string"}, "b": {"type": "string"}}, ["b", "a"]),
        ({"a": {"type": "string"}, "b": {"const": 1.0}}, ["b"]),
        ({"a": UNLIKE}, ["a"]),
    ],
    ids=["patterns", "another order", "an option first", "unlike elements"],
)
def test_what_is_made_up_keeps_to_the_guide_and_to_the_client_s_own_schema(
    properties: Json, required: list[str]
) -> None:
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    format_ = {"type": "json_schema", "name": "x", "strict": True, "schema": schema}
    tool = {"type": "function", "name": "f", "strict": True, "parameters": schema}

    async def story(client: Client) -> None:
        for body in ({"text": {"format": format_}}, {"tools": [tool], "tool_choice": "required"}):
            reply = await client.create(input="x", **body)
            assert reply.status == 200, reply.body
            Draft202012Validator(schema).validate(orjson.loads(texts(reply.json())[-1]))

    played(story)


def test_arguments_that_break_a_schema_which_is_followed_are_a_fault_of_the_script() -> None:
    async def story(client: Client) -> None:
        reply = await client.create(input="x", tools=[MAIL])
        assert "The script's arguments of 'send_email' departs" in reply.error["message"]

    played(story, {"call": {"name": "send_email", "arguments": {"whom": "Wei"}}})


def test_a_script_thinks_calls_several_tools_and_answers_in_lawful_events() -> None:
    calls = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Bern", "Rome")]

    async def story(client: Client) -> None:
        reply = await client.create(input="Both?", tools=[WEATHER], stream=True)
        events = reply.events
        last = events[-1]["response"]
        check(events, last)
        assert texts(last) == ["Two.", '{"city": "Bern"}', '{"city": "Rome"}']

    played(story, {"think": "Two.", "call": calls}, max_calls=4)


def test_chat_and_messages_play_the_same_script() -> None:
    ask = {"model": "demo", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}

    async def story(client: Client) -> None:
        reply = await client.send("POST", "/v1/chat/completions", orjson.dumps(ask), JSON)
        assert reply.json()["choices"][0]["message"]["content"] == "Hello."
        reply = await client.send("POST", "/v1/messages", orjson.dumps(ask), JSON)
        assert reply.json()["content"][-1]["text"] == "Hello."

    played(story, {"say": "Hello."})


def test_a_rule_that_refuses_does_so_as_often_as_it_says() -> None:
    refuse = {"status": 429, "retry_after": 2, "message": "Slowly.", "code": "rate_limit_exceeded"}

    async def story(client: Client) -> None:
        reply = await client.create()
        assert (reply.status, reply.headers["retry-after"]) == (429, "2")
        assert (reply.error["message"], reply.error["code"]) == ("Slowly.", "rate_limit_exceeded")
        assert (await client.create()).status == 200

    played(story, {"when": {"times": 1}, "refuse": refuse}, {"say": "Now."})


def test_no_rule_is_a_400_that_repeats_the_question() -> None:
    async def story(client: Client) -> None:
        reply = await client.create(input="Anybody?")
        assert (reply.status, reply.error["code"]) == (400, "no_rule_holds")
        assert "Anybody?" in reply.error["message"]

    played(story, {"when": {"text": "nobody"}, "say": "a"})


def test_an_engine_that_fails_ends_the_response_behind_what_it_wrote() -> None:
    async def story(client: Client) -> None:
        last = (await client.create(stream=True)).events[-1]
        assert (last["type"], texts(last["response"])) == ("response.failed", ["Half of"])
        assert "The GPU is gone." in last["response"]["error"]["message"]

    played(story, {"say": "Half of", "fail": "The GPU is gone."})


def test_an_engine_that_dies_is_back_and_the_response_is_whole() -> None:
    async def story(client: Client) -> None:
        response = (await client.create()).json()
        assert texts(response) == ["I may die.", "And yet all of it is here."]

    rule = {"think": "I may die.", "say": "And yet all of it is here.", "die_after": 12}
    played(story, rule)


def test_a_budget_of_tokens_leaves_the_response_incomplete() -> None:
    async def story(client: Client) -> None:
        response = (await client.create()).json()
        assert (response["status"], texts(response)) == ("incomplete", ["one two three"])

    played(story, {"say": "one two three four five", "stop_after": 6})


def test_raw_harmony_is_played_as_it_is_written() -> None:
    async def story(client: Client) -> None:
        response = (await client.create()).json()
        assert texts(response) == ["Hm.", "No channel?"]

    raw = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|message|>No channel?<|end|>"
    played(story, {"raw": raw})


def test_a_reply_is_cut_behind_so_many_bytes() -> None:
    async def story(client: Client) -> None:
        reply = await client.create(stream=True)
        assert len(reply.body) == 1500

    played(story, {"say": "A long answer, of which little arrives.", "cut_after": 1500})


def faulty(story: Callable[[Client], Awaitable[None]], *rules: Json) -> None:
    """A server that honours the header of faults."""

    async def run() -> None:
        async with scripted(*rules, engine="script://auto#faults") as client:
            await story(client)

    asyncio.run(run())


async def with_fault(client: Client, fault: str, **body: Any) -> Any:
    asked = {"model": "demo", "input": "Hello", **body}
    return await client.send(
        "POST", "/v1/responses", orjson.dumps(asked), JSON | {"x-fault": fault}
    )


def test_a_header_asks_for_faults_of_each_kind() -> None:
    async def story(client: Client) -> None:
        reply = await with_fault(client, "refuse=429; retry_after=7")
        assert (reply.status, reply.error["type"]) == (429, "too_many_requests")
        assert reply.error["code"] == "rate_limit_exceeded"
        assert reply.headers["retry-after"] == "7"
        assert reply.headers["x-ratelimit-reset-requests"] == "7s"
        reply = await with_fault(client, "refuse=503")
        assert (reply.status, reply.error["code"]) == (503, "server_busy")
        assert len((await with_fault(client, "cut_after=700", stream=True)).body) == 700
        reply = await with_fault(client, "fail=It broke; wait_s=0.01", stream=True)
        assert "It broke" in reply.events[-1]["response"]["error"]["message"]
        assert (await with_fault(client, "stop_after=4")).json()["status"] == "incomplete"
        assert texts((await with_fault(client, "die_after=2")).json()) == ["You wrote: Hello"]
        assert texts((await with_fault(client, "pace_s=0.001")).json()) == ["You wrote: Hello"]
        assert texts((await client.create(input="Hello")).json()) == ["You wrote: Hello"]

    faulty(story)


@pytest.mark.parametrize(
    "fault", ["refuse=200", "say=Hello", "cut_after=x", "cut_after=[", "harmony=no_such"]
)
def test_a_header_that_asks_for_what_is_no_fault_is_refused_by_name(fault: str) -> None:
    async def story(client: Client) -> None:
        reply = await with_fault(client, fault)
        assert (reply.status, reply.error["code"]) == (400, "invalid_fault")
        assert fault.partition("=")[0] in reply.error["message"]

    faulty(story)


def test_a_server_that_was_not_started_to_honour_the_header_does_not() -> None:
    async def story(client: Client) -> None:
        assert (await with_fault(client, "refuse=503")).status == 200

    played(story)


def test_a_lost_store_is_an_error_and_a_response_that_needs_none_is_not() -> None:
    async def story(client: Client) -> None:
        reply = await with_fault(client, "lose_store=true")
        assert (reply.status, reply.error["message"]) == (503, "The store is lost, for a test.")
        assert (await with_fault(client, "lose_store=true", store=False)).status == 200

    faulty(story)


def test_harmony_of_each_wrong_shape_ends_in_lawful_events() -> None:
    """Whatever is wrong, the client gets the call or the answer, unless the shape loses it."""
    call = {"name": "get_weather", "arguments": {"city": "Bern"}}
    loses = {"no_terminator", "unknown_recipient"}

    async def story(client: Client) -> None:
        for shape in (*SHAPES, "any"):
            for question, kind in (("Weather", "function_call"), ("Hello", "message")):
                body = {"input": question, "tools": [WEATHER], "stream": True}
                reply = await with_fault(client, f"harmony={shape}", **body)
                last = reply.events[-1]["response"]
                check(reply.events, last)
                assert last["status"] == "completed", shape
                assert last["output"][-1]["type"] == kind or shape in loses, shape
        wrong = {"input": "Weather", "tools": [WEATHER]}
        call = (await with_fault(client, "harmony=broken_arguments", **wrong)).json()["output"][-1]
        assert call["arguments"] == '{"city": "Bern"'

    thinks = {"think": "Well, well."}
    faulty(story, thinks | {"when": {"text": "weather"}, "call": call}, thinks | {"say": "Hello."})


def test_each_wrong_shape_is_another_text_and_any_is_drawn_by_the_seed() -> None:
    whole = (
        "<|channel|>analysis<|message|>Well.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
    )
    answer = "<|channel|>analysis<|message|>Well.<|end|><|start|>assistant<|channel|>final"
    for shape in SHAPES:
        assert malformed(shape, whole, 0) != whole or malformed(shape, answer, 0) != answer, shape
    drawn = [malformed("any", whole, seed) for seed in range(20)]
    assert drawn == [malformed("any", whole, seed) for seed in range(20)]
    assert len({*drawn}) > 5
    assert whole not in drawn


def test_chances_are_drawn_by_the_seed() -> None:
    refuse = {"when": {"chance": 0.5}, "refuse": 503}

    async def drawn() -> list[int]:
        async with scripted(refuse, {"say": "a"}) as client:
            return [(await client.create()).status for _ in range(8)]

    first = asyncio.run(drawn())
    assert {*first} == {200, 503}
    assert asyncio.run(drawn()) == first

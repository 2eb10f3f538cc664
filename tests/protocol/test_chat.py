"""`POST /v1/chat/completions`: another view of the same run, judged by the SDK's own types."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from openai.types.chat import ChatCompletion

from tests.support.asgi import until
from tests.support.chat import HELLO, PATH, chunks_of, create, finishes, folded
from tests.support.scripted.engine import Die, Script
from tests.support.served import ANSWER, CALL, THOUGHT, Served, ids, served
from tests.support.steering import GUIDES

Json = dict[str, Any]

FUNCTION = {"name": "weather", "parameters": {"type": "object"}}
WEATHER = {"type": "function", "function": FUNCTION}
RESPONSES_WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
TWO_TEXTS = (
    "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant"
    "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    '{"city": "Bern"}<|call|>'
)
CUT = "<|channel|>final<|message|>Hello there"
NO_CALL = "<|channel|>final<|message|>"


def said(completion: Json) -> Json:
    """What a plain message says, with the keys that a stream has for it."""
    message = {k: v for k, v in completion["choices"][0]["message"].items() if v}
    return {k: v for k, v in message.items() if k != "annotations"}


@pytest.mark.parametrize("written", [ANSWER, THOUGHT, CALL, TWO_TEXTS])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_stream_folds_to_the_plain_message(written: str, size: int) -> None:
    async def story() -> None:
        tokens = ids(written)
        steps = tuple(tokens[n : n + size] for n in range(0, len(tokens), size))
        async with served(Script(steps)) as s:
            plain = (await create(s, tools=[WEATHER])).json()
            ChatCompletion.model_validate(plain, strict=True)
            streamed = chunks_of((await create(s, tools=[WEATHER], stream=True)).body)
        whole, expected = folded(streamed), said(plain)
        for message in (whole, expected):
            for call in message.get("tool_calls", ()):
                assert call.pop("id").startswith("call_")
        assert {k: v for k, v in whole.items() if v} == expected
        assert finishes(streamed) == [plain["choices"][0]["finish_reason"]]
        assert len({chunk["id"] for chunk in streamed}) == 1
        assert streamed[0]["id"].startswith("chatcmpl-")
        assert all("usage" not in chunk for chunk in streamed)

    asyncio.run(story())


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_a_thought_has_the_one_name_that_the_settings_choose_or_the_client_shows(name: str) -> None:
    """A client that has sent a thought back under one name reads it there."""
    (other,) = {"reasoning", "reasoning_content"} - {name}

    async def one_name(s: Served, **wanted: Any) -> None:
        message = (await create(s, **wanted)).json()["choices"][0]["message"]
        streamed = folded(chunks_of((await create(s, stream=True, **wanted)).body))
        for found in (message, streamed):
            assert found[name] == "They greet me."
            assert other not in found

    async def story() -> None:
        async with served(THOUGHT, chat_reasoning=name) as s:
            await one_name(s)
        async with served(THOUGHT) as s:
            earlier = {"role": "assistant", "content": "Hello.", name: "A thought."}
            await one_name(s, messages=[*HELLO, earlier, *HELLO])

    asyncio.run(story())


def test_a_chunk_of_text_has_no_field_that_says_nothing() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            streamed = chunks_of((await create(s, stream=True)).body)
        assert not any("logprobs" in choice for chunk in streamed for choice in chunk["choices"])

    asyncio.run(story())


def test_a_thought_has_both_of_its_names_and_can_be_left_out() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            message = (await create(s)).json()["choices"][0]["message"]
            assert message["reasoning"] == message["reasoning_content"] == "They greet me."
            silent = (await create(s, include_reasoning=False)).json()["choices"][0]["message"]
            assert not silent.keys() & {"reasoning", "reasoning_content"}
            streamed = await create(s, include_reasoning=False, stream=True)
            assert folded(chunks_of(streamed.body)) == {
                "role": "assistant",
                "content": "Hello there, friend.",
            }

    asyncio.run(story())


def test_usage_is_the_last_chunk_and_null_before_it() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            plain = (await create(s)).json()["usage"]
            options = {"include_usage": True}
            streamed = await create(s, stream=True, stream_options=options)
            *before, last = chunks_of(streamed.body)
            assert last["choices"] == []
            assert last["usage"] == plain
            assert all(chunk["usage"] is None for chunk in before)
            details = plain["completion_tokens_details"]
            assert 0 < details["reasoning_tokens"] < plain["completion_tokens"]

    asyncio.run(story())


def test_a_call_has_no_content_and_says_its_id_and_name_once() -> None:
    async def story() -> None:
        async with served(CALL) as s:
            choice = (await create(s, tools=[WEATHER])).json()["choices"][0]
            assert choice["finish_reason"] == "tool_calls"
            assert choice["message"]["content"] is None
            (call,) = choice["message"]["tool_calls"]
            assert call["function"] == {"name": "weather", "arguments": '{"city": "Bern"}'}
            chunks = chunks_of((await create(s, tools=[WEATHER], stream=True)).body)
            deltas = [d for c in chunks for d in c["choices"][0]["delta"].get("tool_calls", ())]
            assert [("id" in d, "name" in d["function"]) for d in deltas] == [
                (True, True),
                *[(False, False)] * (len(deltas) - 1),
            ]
            assert {delta["index"] for delta in deltas} == {0}

    asyncio.run(story())


def test_an_answer_that_is_cut_ends_with_length() -> None:
    async def story() -> None:
        async with served(CUT) as s:
            plain = await create(s, max_tokens=4)
            assert plain.json()["choices"][0]["finish_reason"] == "length"
            streamed = await create(s, max_completion_tokens=4, stream=True)
            assert finishes(chunks_of(streamed.body)) == ["length"]

    asyncio.run(story())


def test_an_engine_that_dies_in_a_stream_is_an_error_object_and_then_the_end() -> None:
    async def story() -> None:
        dying = Script((*((i,) for i in ids(CUT)), Die("burnt out")))
        async with served(dying, ANSWER) as s:
            chunks = chunks_of((await create(s, stream=True)).body)
            assert "burnt out" in chunks[-1]["error"]["message"]
            assert chunks[-1]["error"]["code"] == "server_error"
            assert finishes(chunks[:-1]) == []

    asyncio.run(story())


def test_a_tool_loop_has_the_prompt_that_responses_items_have() -> None:
    """The thought comes back under either name, and stands in the prompt id for id."""

    async def story(name: str) -> None:
        async with served(CALL, ANSWER, CALL, ANSWER) as s:
            output = (await s.client.create(tools=[RESPONSES_WEATHER])).json()["output"]
            result = {
                "type": "function_call_output",
                "call_id": output[1]["call_id"],
                "output": "Rain.",
            }
            items = [*HELLO, *output, result]
            await s.client.create(tools=[RESPONSES_WEATHER], input=items)
            expected = s.prompt()
            message = (await create(s, tools=[WEATHER])).json()["choices"][0]["message"]
            message = {k: v for k, v in message.items() if not k.startswith("reasoning")} | {
                name: message[name]
            }
            call_id = message["tool_calls"][0]["id"]
            answer = {"role": "tool", "tool_call_id": call_id, "content": "Rain."}
            final = await create(s, tools=[WEATHER], messages=[*HELLO, message, answer])
            assert s.prompt() == expected
            assert "I need the weather." in s.prompt_text()
            ended = final.json()["choices"][0]["message"]
            again = [*HELLO, message, answer, ended, {"role": "user", "content": "And now?"}]
            await create(s, tools=[WEATHER], messages=again)
            assert "I need the weather." not in s.prompt_text()

    asyncio.run(story("reasoning"))
    asyncio.run(story("reasoning_content"))


def test_instructions_of_both_roles_are_the_developer_message() -> None:
    async def story() -> None:
        async with served() as s:
            await s.client.create(instructions="Be brief.\n\nBe kind.")
            expected = s.prompt()
            messages = [
                {"role": "system", "content": "Be brief."},
                {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            ]
            await create(s, messages=[*messages, *HELLO])
            assert s.prompt() == expected

    asyncio.run(story())


def test_what_is_said_of_sampling_reaches_the_engine() -> None:
    async def story() -> None:
        async with served() as s:
            asked = {"seed": 7, "temperature": 0.5, "top_p": 0.25, "presence_penalty": 0.5}
            await create(s, **asked)
            assert {name: getattr(s.last.options, name) for name in asked} == asked

    asyncio.run(story())


def test_an_effort_may_come_as_an_argument_of_the_template() -> None:
    async def story() -> None:
        async with served() as s:
            high = {"reasoning_effort": "high"}
            await create(s, chat_template_kwargs=high)
            assert "Reasoning: high" in s.prompt_text()
            await create(s, chat_template_kwargs=high, reasoning_effort="low")
            assert "Reasoning: low" in s.prompt_text()
            refused = await create(s, chat_template_kwargs={"reasoning_effort": "huge"})
            assert refused.error["param"] == "chat_template_kwargs.reasoning_effort"

    asyncio.run(story())


def test_calls_beside_each_other_are_told_one_after_another_and_come_back_so() -> None:
    """Where the operator allows more than one, and the client does not forbid it."""
    written = (CALL, " to=functions.time<|channel|>commentary <|message|>", "{}<|call|>", NO_CALL)
    tools = [WEATHER, {"type": "function", "function": {"name": "time"}}]

    async def story() -> None:
        async with served(*written, *written, ANSWER, max_calls=4) as s:
            plain = (await create(s, tools=tools)).json()["choices"][0]
            assert plain["finish_reason"] == "tool_calls"
            calls = plain["message"]["tool_calls"]
            assert [call["function"]["name"] for call in calls] == ["weather", "time"]
            streamed = chunks_of((await create(s, tools=tools, stream=True)).body)
            told = [d for c in streamed for d in c["choices"][0]["delta"].get("tool_calls", ())]
            assert [call["index"] for call in told] == sorted(call["index"] for call in told)
            same = folded(streamed)["tool_calls"]
            assert [call["function"] for call in same] == [call["function"] for call in calls]
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": f"Of {number}."}
                for number, call in enumerate(calls)
            ]
            again = [*HELLO, plain["message"], *results]
            assert (await create(s, tools=tools, messages=again)).status == 200
            shown = s.prompt_text()
            assert shown.index("Of 0.") < shown.index("Of 1.")
        async with served(*written, max_calls=4) as s:
            alone = (await create(s, tools=tools, parallel_tool_calls=False)).json()
            assert len(alone["choices"][0]["message"]["tool_calls"]) == 1

    asyncio.run(story())


def test_a_schema_guides_the_answer_and_a_choice_is_forced() -> None:
    async def story() -> None:
        async with served('{"a": 1}', guides=GUIDES) as s:
            schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            await create(s, response_format=form)
            guides = [request.options.guide for request in s.engine.requests]
            assert any(guide is not None and guide.kind == "json_schema" for guide in guides)
        async with served(CALL, guides=GUIDES) as s:
            choice = {"type": "function", "function": {"name": "weather"}}
            await create(s, tools=[WEATHER], tool_choice=choice)
            assert len(s.engine.requests) > 1

    asyncio.run(story())


def test_logprobs_stand_beside_the_text_they_are_of() -> None:
    async def story() -> None:
        async with served(ANSWER) as s:
            plain = (await create(s, logprobs=True)).json()
            ChatCompletion.model_validate(plain, strict=True)
            told = plain["choices"][0]["logprobs"]["content"]
            assert "".join(entry["token"] for entry in told) == "Hello there, friend."
            streamed = chunks_of((await create(s, logprobs=True, stream=True)).body)
            parts = [c["choices"][0]["logprobs"] for c in streamed if c["choices"]]
            tokens = [entry["token"] for part in parts if part for entry in part["content"]]
            assert "".join(tokens) == "Hello there, friend."

    asyncio.run(story())


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_stop_ends_the_answer_and_the_engines_work(size: int) -> None:
    """It is looked for in the answer alone: the thought has the same words."""
    written = (
        "<|channel|>analysis<|message|>Say one. Two.<|end|><|start|>assistant"
        "<|channel|>final<|message|>One. Two. Three.<|return|>"
    )

    async def story() -> None:
        tokens = ids(written)
        steps = tuple(tokens[n : n + size] for n in range(0, len(tokens), size))
        async with served(Script(steps)) as s:
            plain = (await create(s, stop=["nine", ". Two"])).json()["choices"][0]
            assert plain["message"]["content"] == "One"
            assert plain["message"]["reasoning"] == "Say one. Two."
            assert plain["finish_reason"] == "stop"
            assert size == 1000 or s.last.state == "aborted"
            streamed = chunks_of((await create(s, stop=". Two", stream=True)).body)
            assert folded(streamed)["content"] == "One"
            assert finishes(streamed) == ["stop"]
            unmatched = (await create(s, stop=["Three. Four"])).json()["choices"][0]
            assert unmatched["message"]["content"] == "One. Two. Three."

    asyncio.run(story())


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_stops_the_engine(*, stream: bool) -> None:
    async def story() -> None:
        async with served(manual=True) as s:
            body = {"model": "demo", "messages": HELLO, "stream": stream}
            call = s.client.open("POST", PATH, orjson.dumps(body))
            await until(lambda: bool(s.engine.requests))
            await s.clock.step(5)
            call.hang_up()
            await s.clock.step()
            assert s.last.state == "aborted"
            await call.done()
            assert len(s.runs) == 0

    asyncio.run(story())


BAD: list[tuple[Json, str | None, str | None]] = [
    ({"messages": None}, "messages", "invalid_value"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": "Hello"}, "messages", "invalid_value"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    ({"messages": [{"role": "model", "content": ""}]}, "messages[0]", "invalid_value"),
    ({"messages": [{"role": "system", "content": "x"}]}, "messages", "invalid_value"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0]",
        "unsupported_content",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "x"}]}]},
        "messages[0].content[0]",
        "invalid_value",
    ),
    (
        {"messages": [*HELLO, {"role": "tool", "tool_call_id": "c", "content": ""}]},
        "messages[1].tool_call_id",
        "unknown_call_id",
    ),
    ({"model": "gpt-9"}, "model", "model_not_found"),
    ({"model": ""}, "model", "invalid_value"),
    ({"n": 2}, "n", "unsupported_parameter"),
    ({"temperature": 3}, "temperature", "invalid_value"),
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"top_p": 0}, "top_p", "invalid_value"),
    ({"max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"max_completion_tokens": "x"}, "max_completion_tokens", "invalid_value"),
    ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value"),
    ({"modalities": ["audio"]}, "modalities", "unsupported_parameter"),
    ({"audio": {"voice": "x"}}, "audio", "unsupported_parameter"),
    ({"functions": [FUNCTION]}, "functions", "unsupported_parameter"),
    ({"function_call": "auto"}, "function_call", "unsupported_parameter"),
    ({"web_search_options": {}}, "web_search_options.type", "unsupported_tool"),
    ({"input": "Hello"}, "input", "unsupported_parameter"),
    ({"top_logprobs": 3}, "top_logprobs", "invalid_value"),
    ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_tool"),
    (
        {"messages": [{"role": "assistant", "executed_tools": [{"type": "x"}] * 1001}, *HELLO]},
        "messages[0].executed_tools",
        "invalid_value",
    ),
    ({"tools": [{"type": "file_search"}]}, "tools[0]", "invalid_value"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name", "invalid_value"),
    (
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        "tools[0].function.name",
        "invalid_value",
    ),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"tool_choice": "always"}, "tool_choice", "invalid_value"),
    (
        {"tool_choice": {"type": "function", "function": {"name": "x"}}, "tools": [WEATHER]},
        "tool_choice.function.name",
        "invalid_value",
    ),
    ({"response_format": {"type": "xml"}}, "response_format", "invalid_value"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        "response_format.json_schema.name",
        "missing_required_parameter",
    ),
    ({"stream_options": 1}, "stream_options", "invalid_value"),
    ({"stop": ""}, "stop", "invalid_value"),
    ({"stop": ["x"] * 17}, "stop", "invalid_value"),
    ({"stop": "x", "logprobs": True}, "stop", "unsupported_parameter"),
]


@pytest.mark.parametrize(("fields", "param", "code"), BAD, ids=lambda value: str(value)[:60])
def test_a_malformed_request_is_refused_by_its_place(
    fields: Json, param: str | None, code: str | None
) -> None:
    async def story() -> None:
        async with served(guides=GUIDES) as s:
            reply = await create(s, **fields)
            assert (reply.error["param"], reply.error["code"]) == (param, code)
            assert reply.status == (404 if code == "model_not_found" else 400)
            assert not s.engine.requests

    asyncio.run(story())


def test_a_body_of_the_responses_api_is_told_where_to_go() -> None:
    async def story() -> None:
        async with served() as s:
            body = orjson.dumps({"model": "demo", "input": "Hello"})
            reply = await s.client.send("POST", PATH, body)
            assert reply.status == 400
            assert "POST /v1/responses" in reply.error["message"]
            older = await s.client.send("POST", "/v1/completions", body)
            assert older.status == 404
            assert "/v1/chat/completions" in older.error["message"]

    asyncio.run(story())


def test_what_is_ignored_is_named() -> None:
    async def story() -> None:
        async with served() as s:
            reply = await create(s, user="me", store=True, foo=1, tools=[], n=1, stop=[])
            assert reply.headers["x-trt-ignored"] == "foo, store, user"

    asyncio.run(story())

"""`POST /v1/messages`: Anthropic's API as a view of the same run, judged by its SDK's own types."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import orjson
import pytest

from tests.support.asgi import JSON, until
from tests.support.messages import events_of, folded
from tests.support.sampled import sampled
from tests.support.scripted.engine import Die, Script
from tests.support.served import ANSWER, CALL, KEYED, THOUGHT, Served, ids
from tests.support.served import served as served_app
from tests.support.steering import GUIDES

Json = dict[str, Any]

served = partial(served_app, **KEYED)

PATH = "/v1/messages"
HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {"name": "weather", "input_schema": {"type": "object"}}
RESPONSES_WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
SHOWN = {"type": "adaptive"}
PREAMBLE = (
    "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant"
    "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    '{"city": "Bern"}<|call|>'
)
CUT = "<|channel|>final<|message|>Hello there"


async def create(s: Served, path: str = PATH, **fields: object) -> Any:
    body = {"model": "demo", "max_tokens": 1000, "messages": HELLO} | fields
    return await s.client.send("POST", path, orjson.dumps(body))


def unlike(message: Json) -> Json:
    """A message without what two runs of one script need not share."""
    blocks = [
        {k: v for k, v in block.items() if k not in ("id", "signature")}
        for block in message["content"]
    ]
    return {k: v for k, v in message.items() if k != "id" and v is not None} | {"content": blocks}


@pytest.mark.parametrize("thinking", [None, SHOWN, SHOWN | {"display": "omitted"}])
@pytest.mark.parametrize("written", [ANSWER, THOUGHT, CALL, PREAMBLE])
@sampled("size", [3, 1, 1000])  # 3 s
def test_a_stream_folds_to_the_plain_message(
    written: str, size: int, thinking: Json | None
) -> None:
    from anthropic.types import Message

    async def story() -> None:
        tokens = ids(written)
        steps = tuple(tokens[n : n + size] for n in range(0, len(tokens), size))
        async with served(Script(steps)) as s:
            plain = (await create(s, tools=[WEATHER], thinking=thinking)).json()
            Message.model_validate(plain)
            reply = await create(s, tools=[WEATHER], thinking=thinking, stream=True)
        events = events_of(reply.body)
        assert unlike(folded(events)) == unlike(plain)
        assert [e.type for e in events[-2:]] == ["message_delta", "message_stop"]
        assert plain["id"].startswith("msg_")
        signed = [block for block in plain["content"] if block["type"] == "thinking"]
        assert len(signed) == (thinking is not None and "analysis" in written)
        assert all(block["signature"] for block in [*signed, *_signed(events)])

    asyncio.run(story())


def _signed(events: list[Any]) -> list[Json]:
    content: list[Json] = folded(events)["content"]
    return [block for block in content if block["type"] == "thinking"]


def test_the_events_of_a_turn_come_in_their_order() -> None:
    async def story() -> None:
        async with served(CALL) as s:
            reply = await create(s, tools=[WEATHER], thinking=SHOWN, stream=True)
            events = events_of(reply.body)
            told = [
                (e.type, getattr(e, "index", None), getattr(getattr(e, "delta", None), "type", ""))
                for e in events
            ]
            once = [one for n, one in enumerate(told) if n == 0 or one != told[n - 1]]
            assert once == [
                ("message_start", None, ""),
                ("content_block_start", 0, ""),
                ("content_block_delta", 0, "thinking_delta"),
                ("content_block_delta", 0, "signature_delta"),
                ("content_block_stop", 0, ""),
                ("content_block_start", 1, ""),
                ("content_block_delta", 1, "input_json_delta"),
                ("content_block_stop", 1, ""),
                ("message_delta", None, ""),
                ("message_stop", None, ""),
            ]
            start = events[0].message
            assert (start.type, start.role, start.content) == ("message", "assistant", [])
            assert start.usage.input_tokens == len(s.prompt())

    asyncio.run(story())


@pytest.mark.parametrize("display", ["summarized", "omitted"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_loop_has_the_prompt_that_responses_items_have(
    *, stream: bool, display: str
) -> None:
    """The thought comes back sealed and stands in the prompt id for id, shown or not. In a stream
    it is sealed before the call is written, so that only the thought is."""
    include = [] if stream else ["reasoning.encrypted_content"]

    async def story() -> None:
        async with served(CALL, ANSWER, CALL, ANSWER) as s:
            first = await s.client.create(tools=[RESPONSES_WEATHER], include=include)
            output = first.json()["output"]
            call_id = output[1]["call_id"]
            result = {"type": "function_call_output", "call_id": call_id, "output": "Rain."}
            await s.client.create(tools=[RESPONSES_WEATHER], input=[*HELLO, *output, result])
            expected = s.prompt()
            asked: Json = {"tools": [WEATHER], "thinking": SHOWN | {"display": display}}
            reply = await create(s, **asked, stream=stream)
            message = folded(events_of(reply.body)) if stream else reply.json()
            thought, call = message["content"]
            assert thought["thinking"] == ("I need the weather." if display != "omitted" else "")
            assert call["input"] == {"city": "Bern"}
            again = [
                *HELLO,
                {"role": "assistant", "content": message["content"]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": call["id"], "content": "Rain."}
                    ],
                },
            ]
            await create(s, **asked, messages=again)
            assert s.prompt() == expected
            thought["thinking"] = "I need the stock prices."
            changed = await create(s, **asked, messages=again)
            assert changed.status == 400
            assert "messages[1].content[0].signature" in changed.error["message"]

    asyncio.run(story())


def test_a_call_that_is_written_anew_keeps_the_ids_of_the_model() -> None:
    """A client reads a call's arguments and writes them with other spaces."""
    compact = CALL.replace('{"city": "Bern"}', '{"city":"Bern"}')

    async def story() -> None:
        async with served(compact, ANSWER) as s:
            message = (await create(s, tools=[WEATHER], thinking=SHOWN)).json()
            result = {"type": "tool_result", "tool_use_id": message["content"][1]["id"]}
            again = [
                *HELLO,
                {"role": "assistant", "content": message["content"]},
                {"role": "user", "content": [result]},
            ]
            await create(s, tools=[WEATHER], thinking=SHOWN, messages=again)
            assert '{"city":"Bern"}' in s.prompt_text()

    asyncio.run(story())


@pytest.mark.parametrize("signature", ["", "EqQBCgIYAhIM", "trtr1_AAAA"])
def test_a_signature_that_is_not_ours_is_refused(signature: str) -> None:
    async def story() -> None:
        async with served() as s:
            thought = {"type": "thinking", "thinking": "Hm.", "signature": signature}
            told = {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]}
            reply = await create(s, messages=[*HELLO, told, *HELLO])
            assert reply.status == 400
            assert reply.error["type"] == "invalid_request_error"
            assert "messages[1].content[0].signature" in reply.error["message"]
            assert not s.engine.requests

    asyncio.run(story())


def test_the_system_prompt_is_the_instructions_without_what_is_new_each_turn() -> None:
    async def story() -> None:
        async with served() as s:
            await s.client.create(instructions="Be brief.\n\nBe kind.")
            expected = s.prompt()
            texts = ["x-anthropic-billing-header: cch=1;", "Be brief.", "Be kind."]
            cached = {"cache_control": {"type": "ephemeral"}}
            blocks = [{"type": "text", "text": text} | cached for text in texts]
            await create(s, system=blocks)
            assert s.prompt() == expected
            await create(s, system="Be brief.\n\nBe kind.")
            assert s.prompt() == expected

    asyncio.run(story())


def test_blocks_of_text_are_read_and_a_failed_tool_says_so() -> None:
    async def story() -> None:
        async with served() as s:
            call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
            failed = {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "is_error": True,
                "content": [{"type": "text", "text": "No network."}],
            }
            page = {"type": "text", "media_type": "text/plain", "data": "All about Bern."}
            document = {"type": "document", "source": page, "title": "Guide"}
            messages = [
                *HELLO,
                {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
                {"role": "user", "content": [failed, {"type": "text", "text": "Read:"}, document]},
            ]
            await create(s, messages=messages, tools=[WEATHER])
            text = s.prompt_text()
            assert "<|channel|>commentary<|message|>I look." in text
            assert "Error:\nNo network." in text
            assert "<|start|>user<|message|>Read:\nGuide\nAll about Bern.<|end|>" in text

    asyncio.run(story())


@pytest.mark.parametrize("size", [1, 1000])
def test_a_stop_sequence_is_named_and_not_told(size: int) -> None:
    async def story() -> None:
        tokens = ids("<|channel|>final<|message|>One. Two. Three.<|return|>")
        steps = tuple(tokens[n : n + size] for n in range(0, len(tokens), size))
        async with served(Script(steps)) as s:
            plain = (await create(s, stop_sequences=["nine", ". Two"])).json()
            assert plain["content"] == [{"type": "text", "text": "One"}]
            assert (plain["stop_reason"], plain["stop_sequence"]) == ("stop_sequence", ". Two")
            streamed = await create(s, stop_sequences=["nine", ". Two"], stream=True)
            message = folded(events_of(streamed.body))
            assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", ". Two")

    asyncio.run(story())


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_cut_says_by_what(*, stream: bool) -> None:
    async def story() -> None:
        async with served(CUT + " again" * 500, context_tokens=100) as s:
            for max_tokens, reason in (
                (4, "max_tokens"),
                (32_000, "model_context_window_exceeded"),
            ):
                reply = await create(s, max_tokens=max_tokens, stream=stream)
                message = folded(events_of(reply.body)) if stream else reply.json()
                assert message["stop_reason"] == reason
                used = message["usage"]
                assert used["output_tokens"] == min(max_tokens, 100 - len(s.prompt()))

    asyncio.run(story())


def test_a_call_that_is_cut_is_told_as_far_as_it_goes() -> None:
    async def story() -> None:
        async with served(CALL) as s:
            plain = (await create(s, tools=[WEATHER], max_tokens=len(ids(CALL)) - 3)).json()
            assert plain["stop_reason"] == "max_tokens"
            assert plain["content"][-1]["type"] == "tool_use"
            assert plain["content"][-1]["input"].keys() <= {"city"}

    asyncio.run(story())


DEEP = "[" * 300 + "]" * 300


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("value", "read"), [(2**70, {"city": 2.0**70}), (DEEP, None)], ids=["big", "deep"]
)
def test_arguments_that_no_json_writer_has_are_given_all_the_same(
    value: object, read: Json | None, *, stream: bool
) -> None:
    """A number of more than 64 bits is a float; what is nested too deep is a text."""
    arguments = f'{{"city": {value}}}'

    async def story() -> None:
        async with served(CALL.replace('{"city": "Bern"}', arguments)) as s:
            reply = await create(s, tools=[WEATHER], stream=stream)
        assert reply.status == 200, reply.body
        if stream:  # Anthropic's SDK reads nothing so deep
            assert [event.type for event in events_of(reply.body)][-1] == "message_stop"
        else:
            assert reply.json()["content"][-1]["input"] == (read or {"arguments": arguments})

    asyncio.run(story())


def test_a_choice_is_forced_and_a_schema_guides_the_answer() -> None:
    async def story() -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        async with served('{"a": 1}', guides=GUIDES) as s:
            await create(s, output_config={"format": {"type": "json_schema", "schema": schema}})
            guides = [request.options.guide for request in s.engine.requests]
            assert any(guide is not None and guide.kind == "json_schema" for guide in guides)
        for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
            async with served(CALL, guides=GUIDES) as s:
                await create(s, tools=[WEATHER], tool_choice=choice)
                assert len(s.engine.requests) > 1

    asyncio.run(story())


def test_thinking_is_a_budget_and_an_effort() -> None:
    async def story() -> None:
        async with served(THOUGHT) as s:
            await create(s, output_config={"effort": "high"})
            assert "Reasoning: high" in s.prompt_text()
            off = (await create(s, thinking={"type": "disabled"})).json()
            assert off["usage"]["output_tokens_details"] == {"thinking_tokens": 0}
            await create(s, thinking={"type": "enabled", "budget_tokens": 20})
            assert s.engine.requests[-2].options.max_tokens == 20

    asyncio.run(story())


def test_cached_tokens_are_no_input_tokens() -> None:
    async def story() -> None:
        async with served(ANSWER) as s:
            first = (await create(s)).json()["usage"]
            usage = (await create(s)).json()["usage"]
            whole = usage["input_tokens"] + usage["cache_read_input_tokens"]
            assert whole == first["input_tokens"] == len(s.prompt())
            counted = await create(s, f"{PATH}/count_tokens", max_tokens=None)
            assert counted.json() == {"input_tokens": whole}

    asyncio.run(story())


def test_an_engine_that_dies_in_a_stream_is_an_error_event() -> None:
    async def story() -> None:
        dying = Script((*((i,) for i in ids(CUT)), Die("burnt out")))
        async with served(dying, dying) as s:
            events = events_of((await create(s, stream=True)).body)
            assert events[-1]["error"]["type"] == "api_error"
            assert "burnt out" in events[-1]["error"]["message"]
            plain = await create(s)
            assert (plain.status, plain.json()["type"]) == (500, "error")

    asyncio.run(story())


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_stops_the_engine(*, stream: bool) -> None:
    async def story() -> None:
        async with served(manual=True) as s:
            body = {"model": "demo", "max_tokens": 9, "messages": HELLO, "stream": stream}
            call = s.client.open("POST", PATH, orjson.dumps(body))
            await until(lambda: bool(s.engine.requests))
            await s.clock.step(5)
            call.hang_up()
            await s.clock.step()
            assert s.last.state == "aborted"
            await call.done()
            assert len(s.runs) == 0

    asyncio.run(story())


def test_a_key_comes_as_anthropics_clients_send_it() -> None:
    async def story() -> None:
        async with served(api_keys="me:secret") as s:
            body = orjson.dumps({"model": "demo", "max_tokens": 9, "messages": HELLO})
            named = JSON | {"x-api-key": "secret", "anthropic-version": "2023-06-01"}
            assert (await s.client.send("POST", f"{PATH}?beta=true", body, named)).status == 200
            refused = await s.client.send("POST", PATH, body)
            assert (refused.status, refused.error["type"]) == (401, "authentication_error")
            assert refused.json()["request_id"] == refused.headers["request-id"]

    asyncio.run(story())


def test_a_drain_and_a_full_server_have_their_own_types() -> None:
    async def story() -> None:
        async with served() as s:
            s.drain()
            reply = await create(s)
            assert (reply.status, reply.error["type"]) == (529, "overloaded_error")
            assert reply.headers["retry-after"]
        async with served(manual=True, max_running=1, max_waiting=0) as s:
            body = {"model": "demo", "max_tokens": 9, "messages": HELLO}
            first = s.client.open("POST", PATH, orjson.dumps(body))
            await until(lambda: bool(s.engine.requests))
            reply = await create(s)
            assert (reply.status, reply.error["type"]) == (529, "overloaded_error")
            first.hang_up()
            await first.done()

    asyncio.run(story())


def test_what_is_ignored_is_named() -> None:
    async def story() -> None:
        async with served() as s:
            search = {"type": "web_search_20250305", "name": "web_search"}
            reply = await create(
                s,
                metadata={"user_id": "me"},
                context_management={"edits": []},
                foo=1,
                tools=[WEATHER, search],
                mcp_servers=[],
            )
            assert reply.headers["x-trt-ignored"] == "context_management, foo, metadata"
            assert reply.headers["x-trt-dropped-tools"] == "web_search_20250305"

    asyncio.run(story())


IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}
CALLED = {"type": "tool_use", "id": "c", "name": "weather", "input": {}}


def user(*blocks: Json) -> list[Json]:
    return [{"role": "user", "content": list(blocks)}]


def after_call(*blocks: Json) -> list[Json]:
    return [*HELLO, {"role": "assistant", "content": [CALLED]}, *user(*blocks)]


UNFINISHED = {"role": "assistant", "content": "Well,"}
BAD: list[tuple[Json, str]] = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "Hello"}, "messages"),
    ({"messages": [{"role": "user", "content": []}]}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "tool", "content": ""}]}, "messages[0]"),
    ({"messages": user({"type": "text"})}, "messages[0].content[0].text"),
    ({"messages": user({"type": "audio"})}, "messages[0].content[0]"),
    ({"messages": user(CALLED)}, "messages[0].content[0]"),
    ({"messages": user({"type": "text", "text": "x"}, IMAGE)}, "messages[0].content[1]"),
    (
        {"messages": after_call({"type": "tool_result", "tool_use_id": "c"}, IMAGE)},
        "messages[2].content[1]",
    ),
    (
        {
            "messages": after_call(
                {"type": "tool_result", "tool_use_id": "c", "content": [IMAGE], "is_error": True}
            )
        },
        "messages[2].content[0].content[0]",
    ),
    (
        {"messages": after_call({"type": "tool_result", "tool_use_id": "x"})},
        "messages[2].content[0].tool_use_id",
    ),
    (
        {"messages": after_call({"type": "tool_result"})},
        "messages[2].content[0].tool_use_id",
    ),
    (
        {
            "messages": after_call(
                {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "x"}]}
            )
        },
        "messages[2].content[0].content[0]",
    ),
    ({"messages": [*HELLO, UNFINISHED]}, "messages[1]"),
    (
        {
            "messages": [
                *HELLO,
                {"role": "assistant", "content": [CALLED | {"input": "x"}]},
                *HELLO,
            ]
        },
        "messages[1].content[0].input",
    ),
    (
        {
            "messages": [
                *HELLO,
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]},
                *HELLO,
            ]
        },
        "messages[1].content[0].signature",
    ),
    ({"model": ""}, "model"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"temperature": 1.5}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"stop_sequences": "x"}, "stop_sequences"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ({"system": [{"type": "image"}]}, "system[0].type"),
    ({"system": 5}, "system"),
    ({"tools": [{"name": "x"}]}, "tools[0].input_schema"),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tool_choice": {"type": "tool", "name": "x"}, "tools": [WEATHER]}, "tool_choice.name"),
    ({"tool_choice": {"type": "tool"}, "tools": [WEATHER]}, "tool_choice.name"),
    ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    ({"thinking": {"type": "always"}}, "thinking"),
    ({"output_config": {"effort": "huge"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
    ({"container": "c"}, "container"),
    ({"mcp_servers": [{"type": "url"}]}, "mcp_servers[0].url"),
]


@pytest.mark.parametrize(("fields", "place"), BAD, ids=lambda value: str(value)[:60])
def test_a_malformed_request_is_refused_by_its_place(fields: Json, place: str) -> None:
    async def story() -> None:
        async with served(guides=GUIDES) as s:
            reply = await create(s, **fields)
            assert reply.status == 400, reply.body
            told = reply.json()
            assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
            assert f"'{place}'" in told["error"]["message"] or told["error"]["message"].startswith(
                f"{place}: "
            )
            assert not s.engine.requests

    asyncio.run(story())


def test_what_is_malformed_is_not_counted_either() -> None:
    """A count takes what the prompt is made of, and whatever its last message is."""
    taken = {"messages", "system", "tools", "tool_choice"}
    rows = [
        (fields, place)
        for fields, place in BAD
        if fields.keys() <= taken and fields.get("messages") != [*HELLO, UNFINISHED]
    ]
    assert len(rows) >= 25

    async def story() -> None:
        async with served(guides=GUIDES) as s:
            for fields, place in rows:
                reply = await create(s, f"{PATH}/count_tokens", max_tokens=None, **fields)
                assert reply.status == 400, fields
                assert reply.error["type"] == "invalid_request_error"
                message = reply.error["message"]
                assert f"'{place}'" in message or message.startswith(f"{place}: ")

    asyncio.run(story())


def test_another_model_and_another_type_are_refused() -> None:
    async def story() -> None:
        async with served(max_body_bytes=4000) as s:
            other = await create(s, model="claude-opus-5")
            assert (other.status, other.error["type"]) == (404, "not_found_error")
            form = await s.client.send("POST", PATH, b"x=1", JSON | {"content-type": "text/plain"})
            assert (form.status, form.error["type"]) == (415, "invalid_request_error")
            broken = await s.client.send("POST", PATH, b"{")
            assert (broken.status, broken.error["type"]) == (400, "invalid_request_error")
            large = await create(s, system="x" * 5000)
            assert (large.status, large.error["type"]) == (413, "request_too_large")

    asyncio.run(story())

"""What a response whose tools ran here leaves to the requests that continue it: stored, or carried
by the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai_harmony as h
import pytest

from tests.support.scripted_tool import ScriptedTool
from tests.support.served import KEYED, WEATHER, ids, served, vocabulary
from tests.support.story import story

if TYPE_CHECKING:
    from tests.support.asgi import Json

PYTHON = "<|channel|>analysis to=python code<|message|>1+1<|call|>"
CODE = f"<|channel|>analysis<|message|>I will add.<|end|><|start|>assistant{PYTHON}"
ANSWER = "<|channel|>final<|message|>It is 2.<|return|>"
WEATHER_CALL = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{}<|call|>"
TOOL: Json = {"type": "code_interpreter", "container": {"type": "auto"}}
TOOLS = [TOOL, WEATHER]


def dialogue(text: str) -> str:
    """A prompt without its system and developer messages."""
    return text[text.index("<|start|>user") :]


@story
async def test_after_an_answer_the_next_prompt_is_harmonys_and_holds_no_orphan() -> None:
    async with served(CODE, ANSWER, tools=[ScriptedTool("2")]) as app:
        first = (await app.client.create(input="1+1?", tools=[TOOL])).json()
        await app.client.create(input="Sure?", tools=[TOOL], previous_response_id=first["id"])
        text = app.prompt_text()
    assert "python to=assistant" not in text
    messages = [
        h.Message.from_role_and_content(h.Role.USER, "1+1?"),
        _analysis("I will add."),
        _analysis("1+1").with_recipient("python").with_content_type("code"),
        h.Message.from_author_and_content(h.Author.new(h.Role.TOOL, "python"), "2")
        .with_channel("analysis")
        .with_recipient("assistant"),
        h.Message.from_role_and_content(h.Role.ASSISTANT, "It is 2.").with_channel("final"),
        h.Message.from_role_and_content(h.Role.USER, "Sure?"),
    ]
    conversation = h.Conversation.from_messages(messages)
    theirs = vocabulary().encoding.render_conversation_for_completion(
        conversation, h.Role.ASSISTANT
    )
    assert list(ids(dialogue(text))) == theirs


def _analysis(text: str) -> h.Message:
    return h.Message.from_role_and_content(h.Role.ASSISTANT, text).with_channel("analysis")


@story
async def test_a_loop_that_a_function_broke_off_goes_on_with_the_answers_in_place() -> None:
    async with served(CODE, WEATHER_CALL, ANSWER, tools=[ScriptedTool("2")]) as app:
        first = (await app.client.create(input="Go", tools=TOOLS)).json()
        before = app.prompt_text()
        await app.client.create(
            input=[_result(first)], tools=TOOLS, previous_response_id=first["id"]
        )
        assert app.prompt_text().startswith(before.removesuffix("<|start|>assistant"))
        assert "<|start|>python to=assistant<|channel|>analysis<|message|>2<|end|>" in before


def _result(response: Json) -> Json:
    call = next(item for item in response["output"] if item["type"] == "function_call")
    return {"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny."}


@story
async def test_a_client_that_stores_nothing_carries_the_answers_sealed() -> None:
    asked: Any = {"tools": TOOLS, "store": False, "include": ["reasoning.encrypted_content"]}
    for wrote in (CODE, PYTHON):
        async with served(wrote, WEATHER_CALL, ANSWER, tools=[ScriptedTool("2")], **KEYED) as app:
            first = (await app.client.create(input="Go", **asked)).json()
            assert "logs" not in str(first["output"])
            before = app.prompt_text()
            user = {"role": "user", "content": "Go"}
            history = [user, *first["output"], _result(first)]
            reply = await app.client.create(input=history, **asked)
            assert reply.json()["status"] == "completed"
            assert app.prompt_text().startswith(before.removesuffix("<|start|>assistant")), wrote
            carriers = [item for item in first["output"] if item["type"] == "reasoning"]
            assert [bool(item.get("encrypted_content")) for item in carriers] == [True]


@story
async def test_after_an_answer_a_sealed_call_leaves_the_prompt_with_its_thought() -> None:
    asked: Any = {"tools": [TOOL], "store": False, "include": ["reasoning.encrypted_content"]}
    async with served(CODE, ANSWER, tools=[ScriptedTool("2")], **KEYED) as app:
        first = (await app.client.create(input="Go", **asked)).json()
        user = {"role": "user", "content": "Go"}
        await app.client.create(input=[user, *first["output"], user], **asked)
        assert "to=python" not in dialogue(app.prompt_text())
        assert "python to=assistant" not in app.prompt_text()


LOST: dict[str, Json] = {
    "code": {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "status": "completed"},
    "search": {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}},
    "output that is no text": {"type": "web_search_call", "action": {"output": {"a": 1}}},
    "mcp": {"type": "mcp_call", "id": "m", "server_label": "s", "name": "n", "arguments": "{}"},
}


@pytest.mark.parametrize("item", LOST.values(), ids=LOST)
@story
async def test_a_call_without_its_output_says_so_and_leaves_with_the_answer(item: Json) -> None:
    user = {"role": "user", "content": "Go"}
    answered = {"role": "assistant", "content": "It is 2."}
    async with served(ANSWER, ANSWER, ANSWER) as app:
        await app.client.create(input=[user, item])
        text = dialogue(app.prompt_text())
        assert text.count("<|message|>[The output of this call was not kept.]<|end|>") == 1
        last = (await app.client.create(input=[user, item, answered, user])).json()
        await app.client.create(input="And?", previous_response_id=last["id"])
        for number in (1, 2):
            assert "<|call|>" not in dialogue(app.prompt_text(number))
            assert "not kept" not in dialogue(app.prompt_text(number))


@story
async def test_a_call_that_brings_its_output_stays() -> None:
    item = LOST["code"] | {"outputs": [{"type": "logs", "logs": "2"}]}
    answered = {"role": "assistant", "content": "It is 2."}
    async with served(ANSWER) as app:
        await app.client.create(input=[item, answered, {"role": "user", "content": "Go"}])
        assert "<|message|>2<|end|>" in app.prompt_text()


@story
async def test_the_container_of_the_conversation_is_taken_again() -> None:
    tool = ScriptedTool("2")
    async with served(CODE, ANSWER, tools=[tool]) as app:
        first = (await app.client.create(input="Go", tools=[TOOL])).json()
        await app.client.create(input="Again", tools=[TOOL], previous_response_id=first["id"])
    assert [earlier for _, _, earlier in tool.opened] == [(), ("cntr_scripted",)]


@story
async def test_a_container_that_nobody_has_is_refused_before_any_token() -> None:
    tool = ScriptedTool("2", known=["cntr_known"])
    async with served(CODE, ANSWER, tools=[tool]) as app:
        reply = await app.client.create(tools=[TOOL | {"container": "cntr_other"}])
        assert (reply.status, reply.error["param"]) == (404, "tools[0].container")
        assert not app.engine.requests
        reply = await app.client.create(tools=[TOOL | {"container": "cntr_known"}])
        (call,) = [i for i in reply.json()["output"] if i["type"] == "code_interpreter_call"]
        assert call["container_id"] == "cntr_known"

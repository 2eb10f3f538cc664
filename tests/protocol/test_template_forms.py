"""Models whose form was read out of their templates, served: calls, results, and tools that run
here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support import template_forms
from tests.support.asgi import JSON
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import KEYED
from tests.support.story import story
from tests.support.template_families import checkpoint
from tests.support.template_served import template_served
from tests.support.template_writes import create
from tests.support.template_written import SPEC, answer, turn_text

if TYPE_CHECKING:
    from tests.support.asgi import Json

FAST = ("ByteDance-Seed-OSS", "mistralai-Mistral-Nemo-Instruct-2407")
"""Tags, and a list."""
SLOW = pytest.mark.slow  # a second each
every_form = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FAST else SLOW, id=name)
        for name in template_forms.with_calls()
    ],
)
WEATHER: Json = SPEC["function"] | {"type": "function", "strict": False}
CODE: Json = {"type": "code_interpreter", "container": {"type": "auto"}}
OWN_PYTHON = "meetkai-functionary-medium-v3.1"
"""Its template writes a call of `python` with another mark than all other calls."""
CITIES = ({"city": "Oslo"}, {"city": "Rom"})


@every_form
@story
async def test_calls_come_as_items_and_their_results_go_back(name: str) -> None:
    several = checkpoint(name).family.calls.several  # type: ignore[union-attr]  # it has calls
    cities = CITIES if several else CITIES[:1]
    made = [turn_text(name, "", cities), answer(name, "It is cold.", behind_result=True)]
    async with template_served(name, *made) as s:
        reply = (await create(s, tools=[WEATHER])).json()
        assert reply["parallel_tool_calls"] is several
        calls = [item for item in reply["output"] if item["type"] == "function_call"]
        assert [json.loads(call["arguments"]) for call in calls] == list(cities)
        assert {call["name"] for call in calls} == {"get_weather"}
        results = [
            {"type": "function_call_output", "call_id": call["call_id"], "output": f"cold {at}"}
            for at, call in enumerate(calls)
        ]
        behind = await create(s, previous_response_id=reply["id"], input=results, tools=[WEATHER])
        assert behind.status == 200, behind.body
        assert answer_of(behind.json()) == "It is cold."
        prompt = checkpoint(name).tokeniser.text(s.prompt(1))
        assert all(f"cold {at}" in prompt for at in range(len(cities)))
        assert all(city["city"] in prompt for city in cities)


@every_form
@story
async def test_a_tool_that_runs_here_is_called_and_answered(name: str) -> None:
    if name == OWN_PYTHON:
        return
    calling = turn_text(name, "", [{"code": "1+1"}], function="python")
    two = answer(name, "Two.", behind_result=True)
    tool = ScriptedTool("2 is it")
    async with template_served(name, calling, two, tools=[tool]) as s:
        reply = (await create(s, tools=[CODE])).json()
        assert reply["status"] == "completed", reply
        assert [call.text for call in tool.calls] == ["1+1"]
        assert answer_of(reply) == "Two."
        assert "2 is it" in checkpoint(name).tokeniser.text(s.prompt(1))


@every_form
@story
async def test_the_instructions_and_the_question_are_in_the_prompt(name: str) -> None:
    async with template_served(name, answer(name, "Hello.")) as s:
        reply = await create(s, instructions="Be brief, please.", input="Who are you?")
        assert reply.status == 200, reply.body
        prompt = checkpoint(name).tokeniser.text(s.prompt(0))
        assert "Be brief, please." in prompt
        assert "Who are you?" in prompt


@every_form
@story
async def test_stop_texts_and_logprobs_work(name: str) -> None:
    async with template_served(name, answer(name, "Hello there, you.")) as s:
        reply = (await create(s, include=["message.output_text.logprobs"])).json()
        (message,) = [item for item in reply["output"] if item["type"] == "message"]
        (part,) = message["content"]
        assert "".join(one["token"] for one in part["logprobs"]).strip() == part["text"]
        messages = [{"role": "user", "content": "Hi"}]
        asked = orjson.dumps({"model": "demo", "messages": messages, "stop": ["there"]})
        chat = await s.client.send("POST", "/v1/chat/completions", asked, JSON)
        assert chat.json()["choices"][0]["message"]["content"] == "Hello "


@every_form
@story
async def test_a_conversation_is_compacted(name: str) -> None:
    written = "They greeted.", "They greeted.", "Yes."
    async with template_served(name, *(answer(name, text) for text in written), **KEYED) as s:
        talk = [
            {"role": "user", "content": "Who are you?"},
            {"role": "assistant", "content": "A model."},
        ]
        body = orjson.dumps({"model": "demo", "input": talk})
        made = (await s.client.send("POST", "/v1/responses/compact", body)).json()
        item = made["output"][-1]
        assert item["type"] == "compaction", made
        call = await create(s, input=[item, {"role": "user", "content": "And now?"}])
        assert call.status == 200, call.body
        prompt = checkpoint(name).tokeniser.text(s.prompt())
        assert "They greeted." in prompt
        assert "A model." not in prompt


def answer_of(reply: Json) -> str:
    (message,) = [item for item in reply["output"] if item["type"] == "message"]
    text: str = message["content"][0]["text"]
    return text

"""What a model that does not speak Harmony is asked for beyond text and functions: it is done, or
refused by name before any token."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.asgi import JSON
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import WEATHER
from tests.support.template_families import checkpoint
from tests.support.template_served import template_served
from tests.support.template_turns import ids_of

if TYPE_CHECKING:
    from tests.support.served import Served

ANSWER = "<think>\nHm.\n</think>\n\nHello <b>there</b>.<|im_end|>"
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
RUN_HERE: dict[str, dict[str, Any]] = {
    "code_interpreter": {"container": {"type": "auto"}},
    "web_search": {},
    "shell": {"environment": {"type": "container_auto"}},
    "mcp": {"server_label": "deepwiki", "server_url": "https://mcp.deepwiki.com/mcp"},
}
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a Lark grammar": (
        "qwen3",
        {"tools": [{"type": "custom", "name": "shell", "format": GRAMMAR}]},
        "tools[0].format",
    ),
    "tools where the template shows none": ("deepseek_v3_1", {"tools": [WEATHER]}, "tools[0]"),
}


async def create(s: Served, **fields: Any) -> Any:
    body = {"model": "demo", "input": "Hi"} | fields
    return await s.client.send("POST", "/v1/responses", orjson.dumps(body), JSON)


@pytest.mark.parametrize(("name", "fields", "param"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_model_cannot_be_asked_for_is_refused_by_name(
    name: str, fields: dict[str, Any], param: str
) -> None:
    async def story() -> None:
        async with template_served(name, ANSWER, tools=[ScriptedTool()]) as s:
            call = await create(s, **fields)
            assert (call.status, call.error["type"]) == (400, "invalid_request_error"), call.body
            assert call.error["param"].startswith(param)
            assert "its dialect is" in call.error["message"]
            assert not s.engine.requests

    asyncio.run(story())


@pytest.mark.parametrize("kind", RUN_HERE)
def test_a_tool_that_runs_here_is_refused_where_the_template_shows_none(kind: str) -> None:
    tool = ScriptedTool()
    tool.kind = kind

    async def story() -> None:
        async with template_served("deepseek_v3_1", ANSWER, tools=[tool]) as s:
            call = await create(s, tools=[{"type": kind, **RUN_HERE[kind]}])
            assert call.status == 400, call.body
            assert call.error["param"] == "tools[0]"
            assert "this model's template shows it no tools" in call.error["message"]
            assert not tool.opened
            assert not s.engine.requests

    asyncio.run(story())


def test_a_prompt_of_ids_is_refused_and_one_of_text_is_taken() -> None:
    async def story() -> None:
        async with template_served("qwen3", ANSWER) as s:
            path = "/v2/models/demo/generate"
            call = await s.client.send("POST", path, orjson.dumps({"input_ids": [1, 2]}), JSON)
            assert call.status == 400
            assert b"input_ids" in call.body
            assert not s.engine.requests
            call = await s.client.send("POST", path, orjson.dumps({"text_input": "Hi"}), JSON)
            assert call.status == 200, call.body

    asyncio.run(story())


def test_logprobs_of_an_answer_are_of_its_text_alone() -> None:
    async def story() -> None:
        async with template_served("qwen3", ANSWER) as s:
            call = await create(s, include=["message.output_text.logprobs"], top_logprobs=1)
            assert call.status == 200, call.body
            thought, answer = call.json()["output"]
            assert thought["type"] == "reasoning"
            (part,) = answer["content"]
            assert part["text"] == "Hello <b>there</b>."
            assert "".join(one["token"] for one in part["logprobs"]).strip() == part["text"]
            assert all(math.isfinite(one["logprob"]) for one in part["logprobs"])

    asyncio.run(story())


def test_a_thought_that_goes_on_as_another_author_ends_there_and_an_answer_comes() -> None:
    said = "<think>\nHm.<|im_start|>user\nHi", "There.<|im_end|>"

    async def story() -> None:
        async with template_served("qwen3", *said) as s:
            call = await create(
                s, tools=[WEATHER], tool_choice="none", reasoning={"max_tokens": 64}
            )
            assert call.status == 200, call.body
            texts = [item["content"][0]["text"] for item in call.json()["output"]]
            assert texts == ["Hm.", "There."]

    asyncio.run(story())


def test_a_custom_tools_input_comes_as_text() -> None:
    written = (
        '<tool_call>\n{"name": "shell", "arguments": {"input": "ls \\"x\\""}}\n</tool_call>'
        "<|im_end|>"
    )

    async def story() -> None:
        async with template_served("qwen3", written) as s:
            call = await create(s, tools=[{"type": "custom", "name": "shell"}])
            assert call.status == 200, call.body
            (item,) = call.json()["output"]
            assert (item["type"], item["input"]) == ("custom_tool_call", 'ls "x"')

    asyncio.run(story())


@pytest.mark.parametrize("thought", ["<think>\nHm.\n</think>\n\n", "<think>\nHm.", "Hm.</think>"])
def test_a_turn_that_ends_after_its_thought_continues_once(thought: str) -> None:
    name = "qwen3_5_think" if not thought.startswith("<") else "qwen3"

    async def story() -> None:
        written = f"{thought}<|im_end|>", "It is 2.<|im_end|>", f"{thought}<|im_end|>"
        async with template_served(name, *written) as s:
            reply = (await create(s)).json()
            assert [item["type"] for item in reply["output"]] == ["reasoning", "message"]
            assert reply["output"][1]["content"][0]["text"] == "It is 2."
            begun = [*s.prompt(0), *ids_of(name, thought)]
            assert s.prompt(1)[: len(begun)] == begun
            shown = checkpoint(name).tokeniser.text(s.prompt(1))
            assert shown.rstrip().endswith("</think>")
            more = (await create(s, previous_response_id=reply["id"], input="Sure?")).json()
            kinds = [item["type"] for item in more["output"]]  # behind an end, no thought is open
            assert kinds == ["reasoning", "reasoning" if thought.startswith("<") else "message"]
            assert len(s.engine.requests) == 4

    asyncio.run(story())


def test_a_call_after_a_turn_of_thought_alone_is_answered() -> None:
    """The template writes the call and its result behind the turn that was reopened."""
    call = '<tool_call>\n{"name": "python", "arguments": {"code": "1+1"}}\n</tool_call>'

    async def story() -> None:
        written = "<think>\nHm.\n</think><|im_end|>", call, "It is 2.<|im_end|>"
        async with template_served("qwen3", *written, tools=[ScriptedTool("two!")]) as s:
            tool = {"type": "code_interpreter", "container": {"type": "auto"}}
            reply = (await create(s, tools=[tool])).json()
            assert reply["status"] == "completed", reply
            kinds = [item["type"] for item in reply["output"]]
            assert kinds == ["reasoning", "code_interpreter_call", "message"]
            shown = checkpoint("qwen3").tokeniser.text(s.prompt())
            assert shown.count('"code": "1+1"') == shown.count("two!") == 1

    asyncio.run(story())

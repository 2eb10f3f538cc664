"""`mcp` over HTTP: arguments are held to the schema of their tool, as a strict function's are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.mcp_served import items, offer, using
from tests.support.mcp_site import mcp_site, tool
from tests.support.scripted.engine import Script
from tests.support.served import ids, script, vocabulary
from tests.support.steering import GUIDES
from tests.support.story import story

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.asgi import Json
    from trt_responses.engine import GenerateOptions

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 7},
        "of": {"type": "string", "enum": ["day", "week"]},
    },
    "required": ["city"],
}
BERN = '{"city": "Bern"}'


class Model:
    """Calls the tool `find` of its own accord, with these arguments, and answers then."""

    def __init__(self, arguments: str = BERN, name: str = "demo__find") -> None:
        self.arguments = arguments
        self.name = name
        self.guides: list[Json] = []
        """The schemas by which it was guided."""

    def __call__(self, prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        text = vocabulary().text(list(prompt_ids))
        if options.guide is not None:
            if options.guide.kind == "regex":
                header = (
                    "final" if "to=assistant" in text else f"commentary to=functions.{self.name} "
                )
                return Script((ids(f"{header}<|endoftext|>"),))
            self.guides.append(json.loads(options.guide.source))
            return Script((ids(f"{self.arguments}<|endoftext|>"),))
        if text.endswith("<|start|>assistant") and "to=assistant" not in text:
            header = f"commentary to=functions.{self.name} <|constrain|>json<|message|>"
            return Script((ids(f"<|channel|>{header}"),))
        if text.endswith("analysis<|message|>"):
            return script("Hm.<|end|>")
        return script("Yes.<|return|>" if text.endswith("final<|message|>") else ANSWER)


ANSWER = "<|channel|>final<|message|>Yes.<|return|>"
CHOICES: dict[str, Any] = {
    "auto": "auto",
    "required": "required",
    "the server": {"type": "mcp", "server_label": "demo"},
    "the tool": {"type": "mcp", "server_label": "demo", "name": "find"},
    "allowed": {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "mcp", "server_label": "demo", "name": "find"}],
    },
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
@story
async def test_a_call_is_guided_by_the_schema_of_its_tool_as_a_strict_function_is(
    choice: Any,
) -> None:
    ours, theirs = Model(), Model(name="find")
    async with mcp_site(tool("find") | {"inputSchema": SCHEMA}) as server:
        async with using(server, ours, guides=GUIDES) as app:
            call = await app.client.create(tools=[offer(server)], tool_choice=choice)
        strict = {"type": "function", "name": "find", "strict": True}
        strict["parameters"] = SCHEMA | {"additionalProperties": False}
        async with using(server, theirs, guides=GUIDES) as other:
            named = {"type": "function", "name": "find"}
            chosen = choice if isinstance(choice, str) else named
            await other.client.create(tools=[strict], tool_choice=chosen)
    shown = 'type demo__find = (_: {\ncity: string,\nof?: "day" | "week",\n}) => any;'
    assert shown in app.prompt_text(0)
    (made,) = items(call, "mcp_call")
    assert (made["status"], made["arguments"]) == ("completed", BERN)
    assert ours.guides == theirs.guides != []


DEPARTURES = {
    "too long": '{"city": "Winterthur"}',
    "of no enum": '{"city": "Bern", "of": "year"}',
    "without what is required": "{}",
    "with a name that is not listed": '{"city": "Bern", "more": 1}',
    "no object": "[]",
}


@pytest.mark.parametrize("choice", [CHOICES["auto"], CHOICES["the tool"]], ids=["auto", "chosen"])
@pytest.mark.parametrize("arguments", DEPARTURES.values(), ids=DEPARTURES)
@story
async def test_arguments_that_depart_from_the_schema_are_not_sent(
    arguments: str, choice: Any
) -> None:
    async with (
        mcp_site(tool("find") | {"inputSchema": SCHEMA}) as server,
        using(server, Model(arguments), guides=GUIDES) as app,
    ):
        call = await app.client.create(tools=[offer(server)], tool_choice=choice)
        assert (call.status, call.error["code"]) == (500, "output_departs_from_format")
        assert "'demo__find'" in call.error["message"]
        assert server.count("tools/call") == 0


@story
async def test_what_no_guide_can_say_is_left_to_the_server() -> None:
    """It tells the model of its own accord; no client has asked for the schema to be kept."""
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    refusal = {"content": [{"type": "text", "text": "Twice 1."}], "isError": True}
    async with (
        mcp_site(tool("find") | {"inputSchema": schema}) as server,
        using(server, Model('{"a": [1, 1]}'), guides=GUIDES) as app,
    ):
        server.results["find"] = refusal
        call = await app.client.create(tools=[offer(server)])
        assert call.json()["status"] == "completed"
        (made,) = items(call, "mcp_call")
        assert made["error"]["type"] == "mcp_tool_execution_error"
        assert "<|message|>Error: Twice 1.<|end|>" in app.prompt_text()


ODD: dict[str, Any] = {
    "no schema at all": {"type": "object", "properties": {"a": {"type": "banana"}}},
    "a reference that leads nowhere": {"type": "object", "$ref": "#/$defs/a"},
    "nothing of its members": {"type": "object"},
}


@pytest.mark.parametrize("schema", ODD.values(), ids=ODD)
@story
async def test_a_schema_that_cannot_be_followed_is_nobodys_fault(schema: Json) -> None:
    model = Model('{"any": 1}')
    async with (
        mcp_site(tool("find") | {"inputSchema": schema}) as server,
        using(server, model, guides=GUIDES) as app,
    ):
        call = await app.client.create(tools=[offer(server)])
        assert call.json()["status"] == "completed", call.body
        assert [one["arguments"] for one in items(call, "mcp_call")] == ['{"any": 1}']
    assert model.guides == [{"type": "object"}]


@story
async def test_a_spent_tool_is_no_longer_among_what_a_turn_may_be() -> None:
    model = Model()
    async with (
        mcp_site(tool("find") | {"inputSchema": SCHEMA}) as server,
        using(server, model, guides=GUIDES) as app,
    ):
        call = await app.client.create(tools=[offer(server)], max_tool_calls=1)
        assert [one["status"] for one in items(call, "mcp_call")] == ["completed"]
        assert call.json()["output"][-1]["type"] == "message"
        assert server.count("tools/call") == 1
    last = app.engine.requests[-1]
    assert vocabulary().text(list(last.prompt_ids)).endswith("<|channel|>final<|message|>")


@story
async def test_an_engine_without_guides_calls_tools_all_the_same() -> None:
    called = (
        f"<|channel|>commentary to=functions.demo__find <|constrain|>json<|message|>{BERN}<|call|>"
    )
    async with (
        mcp_site(tool("find") | {"inputSchema": SCHEMA}) as server,
        using(server, called, ANSWER) as app,
    ):
        call = await app.client.create(tools=[offer(server)])
        assert [one["arguments"] for one in items(call, "mcp_call")] == [BERN]

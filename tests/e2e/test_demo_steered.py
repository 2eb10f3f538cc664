"""What is steered, continued and cached on the trained demo model, by the real `openai` client.

One server for all, of two slots for each of its owners. What is asked needs no more of the model
than to copy the name of a well-known city into a call. Budget: 10 s on one core.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from anyio.from_thread import start_blocking_portal
from openai import OpenAI

from scripts.demo.rows import encode
from tests.support import lawful
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from openai.types.responses import Response, ResponseStreamEvent

pytestmark = pytest.mark.xdist_group("embedded")

Json = dict[str, Any]
OWNERS = ("ann", "bob", "eve")
SLOTS = 2 * len(OWNERS)
MOST_CALLS = 3
ASKED: Json = {"model": "demo", "temperature": 0}
SUNNY = json.dumps({"temperature": 21, "condition": "sunny"})


def tool(name: str, description: str, *, strict: bool = False) -> Json:
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "name": name,
        "description": description,
        "strict": strict,
        "parameters": parameters,
    }


WEATHER = tool("get_weather", "Get the weather")
STRICT = tool("get_weather", "Get the weather", strict=True)
TIME = tool("get_time", "Get the time")
NAMED = {"type": "function", "name": "get_weather"}
FORCED: dict[str, Json] = {
    "required": {"tools": [WEATHER], "tool_choice": "required"},
    "required strict": {"tools": [STRICT], "tool_choice": "required"},
    "named": {"tools": [WEATHER, TIME], "tool_choice": NAMED},
    "named strict": {"tools": [STRICT, TIME], "tool_choice": NAMED},
    "allowed": {
        "tools": [WEATHER, TIME],
        "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [NAMED]},
    },
}


@pytest.fixture(scope="module")
def client_of(demo_gguf: Path) -> Iterator[Callable[[str], OpenAI]]:
    """The synchronous client of an owner; the server has an event loop of its own."""
    keys = {"api_keys": ",".join(f"{owner}:key-{owner}" for owner in OWNERS)}
    engine = LlamaCppEngine(demo_gguf, context_tokens=2048, slots=SLOTS, threads=1)
    app = create_app(Settings.model_validate(keys | {"max_calls": MOST_CALLS}), engine=engine)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(app)) as address,
    ):
        clients = {
            owner: OpenAI(base_url=f"{address.url}/v1", api_key=f"key-{owner}", max_retries=0)
            for owner in OWNERS
        }
        yield clients.__getitem__
        for client in clients.values():
            client.close()


@pytest.fixture(scope="module")
def client(client_of: Callable[[str], OpenAI]) -> OpenAI:
    return client_of(OWNERS[0])


def streamed(client: OpenAI, **asked: Any) -> Response:
    """The last snapshot of a stream that is lawful."""
    with client.responses.create(**ASKED, **asked, stream=True) as stream:
        events: list[ResponseStreamEvent] = list(stream)
    last = events[-1]
    assert last.type == "response.completed"
    told: list[Any] = [event.to_dict(mode="json") for event in events]
    lawful.check(told, told[-1]["response"])
    return last.response


def in_both_ways(client: OpenAI, **asked: Any) -> tuple[Response, Response]:
    return client.responses.create(**ASKED, **asked), streamed(client, **asked)


def calls_of(made: Response) -> list[tuple[str, Json]]:
    return [
        (item.name, json.loads(item.arguments))
        for item in made.output
        if item.type == "function_call"
    ]


class Counted(NamedTuple):
    prompt: int
    cached: int
    made: int


def counted(made: Response) -> Counted:
    usage = made.usage
    assert usage is not None
    cached = usage.input_tokens_details.cached_tokens
    return Counted(usage.input_tokens, cached, usage.output_tokens)


@pytest.mark.parametrize("city", ["Paris", "Tokyo"])
@pytest.mark.parametrize("way", FORCED)
def test_a_forced_call_has_the_right_arguments(client: OpenAI, way: str, city: str) -> None:
    asked = FORCED[way] | {"input": f"What is the weather in {city}?", "parallel_tool_calls": False}
    for made in in_both_ways(client, **asked):
        assert made.status == "completed"
        assert [item.type for item in made.output] == ["reasoning", "function_call"]
        assert calls_of(made) == [("get_weather", {"city": city})]


def test_a_call_is_forced_where_the_model_would_answer(client: OpenAI) -> None:
    asked: Json = {"input": "Hello", "tools": [STRICT]}
    (free, _), forced = (
        in_both_ways(client, **asked),
        in_both_ways(client, **asked, tool_choice="required", parallel_tool_calls=False),
    )
    assert free.output[-1].type == "message"
    for made in forced:
        assert [name for name, _ in calls_of(made)] == ["get_weather"]
        assert made.output[-1].type == "function_call"


@pytest.mark.parametrize("way", ["named", "named strict", "allowed"])
def test_a_call_is_forced_where_the_model_would_make_another(client: OpenAI, way: str) -> None:
    asked = FORCED[way] | {"input": "What time is it in Tokyo?", "parallel_tool_calls": False}
    free = client.responses.create(**ASKED | asked | {"tool_choice": "auto"})
    assert calls_of(free) == [("get_time", {"city": "Tokyo"})]
    for made in in_both_ways(client, **asked):
        assert calls_of(made) == [("get_weather", {"city": "Tokyo"})]


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_more_calls_than_one_may_come_when_the_setting_allows_them(
    client: OpenAI, choice: str
) -> None:
    """That it may is told; asked about one city, the model calls once."""
    asked: Json = {"tools": [WEATHER, TIME], "tool_choice": choice}
    for made in in_both_ways(client, input="What is the weather in Paris?", **asked):
        assert made.parallel_tool_calls is True
        assert calls_of(made) == [("get_weather", {"city": "Paris"})]
        results: Any = [
            {"type": "function_call_output", "call_id": item.call_id, "output": SUNNY}
            for item in made.output
            if item.type == "function_call"
        ]
        after = client.responses.create(
            **ASKED, input=results, tools=asked["tools"], previous_response_id=made.id
        )
        assert after.status == "completed"
        assert counted(after).cached >= counted(made).prompt


def test_a_tool_loop_finds_all_that_it_generated_in_the_cache(client: OpenAI) -> None:
    """Stored here, and replayed by a client that stores nothing."""
    asked = ASKED | {"tools": [WEATHER], "include": ["reasoning.encrypted_content"]}
    asked["parallel_tool_calls"] = False
    user: Any = {"role": "user", "content": "What is the weather in Tokyo?"}
    for store in (True, False):
        made = client.responses.create(**asked, input=[user], store=store)
        call = made.output[-1]
        assert call.type == "function_call"
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": SUNNY}
        replay: list[Any] = [user, *(item.to_dict() for item in made.output), result]
        after = (
            client.responses.create(**asked, input=[result], previous_response_id=made.id)
            if store
            else client.responses.create(**asked, input=replay, store=False)
        )
        known = counted(made).prompt + counted(made).made
        assert counted(after).prompt > known
        assert counted(after).cached >= known - 1  # the last id was not computed


def test_cached_tokens_are_an_owners_own(client_of: Callable[[str], OpenAI]) -> None:
    asked = ASKED | {"input": "What is the capital of France?"}
    bob, eve = client_of("bob"), client_of("eve")
    bob.responses.create(**asked)
    known = counted(bob.responses.create(**asked))
    assert known.cached == known.prompt - 1  # one is computed for the first answer's token
    stranger = counted(eve.responses.create(**asked))
    assert (stranger.prompt, stranger.cached) == (known.prompt, 0)
    assert counted(eve.responses.create(**asked)).cached == known.cached


PATCHES = r"""
start: opening change+ closing
opening: "*** Begin Patch" LF
closing: "*** End Patch" LF?

change: added | deleted | updated
added: "*** Add File: " path LF new_line+
deleted: "*** Delete File: " path LF
updated: "*** Update File: " path LF moved? edits?

path: /[a-z]{1,8}\.py/
new_line: "+" /[a-z =]{0,12}/ LF -> line

moved: "*** Move to: " path LF
edits: (context | edit)+ at_end?
context: ("@@" | "@@ " /[a-z ]{1,12}/) LF
edit: ("+" | "-" | " ") /[a-z =]{0,12}/ LF
at_end: "*** End of File" LF

%import common.LF
"""
"""What agents' `apply_patch` tools take, with short lines, so that it ends."""
PATH, LINE = r"[a-z]{1,8}\.py\n", r"[a-z =]{0,12}\n"
EDITS = rf"((@@\n|@@ [a-z ]{{1,12}}\n|[-+ ]{LINE})+(\*\*\* End of File\n)?)?"
PATCH = re.compile(
    rf"\*\*\* Begin Patch\n(\*\*\* Add File: {PATH}(\+{LINE})+|\*\*\* Delete File: {PATH}"
    rf"|\*\*\* Update File: {PATH}(\*\*\* Move to: {PATH})?{EDITS})+\*\*\* End Patch\n?"
)


def test_a_patch_is_written_by_its_grammar_as_raw_text(client: OpenAI) -> None:
    """Penalties keep the model from one line for ever, and a bias brings it to the end. A text
    that is cut has begun as it must."""
    form: Any = {"type": "grammar", "syntax": "lark", "definition": PATCHES}
    tools: Any = [{"type": "custom", "name": "apply_patch", "format": form}]
    for seed in range(6):
        made = client.responses.create(
            model="demo",
            input="Add the file a.py.",
            tools=tools,
            tool_choice="required",
            parallel_tool_calls=False,
            reasoning={"effort": "none"},
            max_output_tokens=150,
            extra_body={
                "seed": seed,
                "frequency_penalty": 2,
                "presence_penalty": 2,
                "logit_bias": {encode("***")[0]: 8, encode(" End")[0]: 8},
            },
        )
        call = made.output[-1]
        assert call.type == "custom_tool_call"
        assert call.input.startswith("*** Begin Patch\n*** ")
        if made.status == "completed":
            assert PATCH.fullmatch(call.input), call.input
            return
    pytest.fail("every patch was cut")

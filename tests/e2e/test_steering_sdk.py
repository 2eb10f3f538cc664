"""Steering through the real `openai` SDK: parsed answers, forced calls, streamed and plain.

The scripted engine plays the ids of a model that follows its guides; the embedded one has nothing
to say and is guided all the same. Budget: 20 s on one core, most of it the embedded engine's start.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

from tests.support.scripted.engine import Script, ScriptedEngine
from tests.support.served import SETTINGS, ids
from tests.support.serving import serving
from tests.support.steering import GUIDES
from trt_responses.app import create_app
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

    from openai.types.responses import FunctionToolParam, ParsedResponse

    from trt_responses.engine import Engine, GenerateOptions

Json = dict[str, Any]


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Step(BaseModel):
    title: str = Field(max_length=3)
    done: bool


class Nested(BaseModel):
    steps: list[Step] = Field(max_length=2)
    best: Step


class Optionals(BaseModel):
    note: str | None = Field(max_length=2)
    count: int | None = Field(ge=0, le=9)


class Enums(BaseModel):
    color: Color
    size: Literal["s", "m"]
    grade: Literal[1, 2]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool


class Unions(BaseModel):
    pet: Cat | Dog
    code: bool | None


class Lists(BaseModel):
    flags: list[bool] = Field(min_length=1, max_length=3)
    grid: list[list[bool]] = Field(max_length=2)


class Recursive(BaseModel):
    value: bool
    next: Recursive | None


EXAMPLES: dict[type[BaseModel], Json] = {
    Nested: {"steps": [{"title": "a", "done": True}], "best": {"title": "é\n", "done": False}},
    Optionals: {"note": None, "count": 3},
    Enums: {"color": "green", "size": "m", "grade": 2},
    Unions: {"pet": {"kind": "dog", "good": True}, "code": None},
    Lists: {"flags": [True, False], "grid": [[], [True]]},
    Recursive: {"value": True, "next": {"value": False, "next": None}},
}
every_model = pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)


def obedient(text: str, header: str = "final") -> ScriptedEngine:
    """A model that thinks a little, and then writes what its guide asks for."""

    def say(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        guide = options.guide
        said = "Well.<|end|>"
        if guide is not None:
            said = f"{header if guide.kind == 'regex' else text}<|endoftext|>"
        return Script(tuple((token_id,) for token_id in ids(said)))

    return ScriptedEngine(say, guides=GUIDES)


@asynccontextmanager
async def client_of(engine: Engine) -> AsyncIterator[AsyncOpenAI]:
    app = create_app(Settings(**SETTINGS), engine=engine)
    async with (
        serving(app) as address,
        AsyncOpenAI(base_url=f"{address.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def run(engine: Engine, story: Callable[[AsyncOpenAI], Coroutine[None, None, None]]) -> None:
    async def told() -> None:
        async with client_of(engine) as client:
            await story(client)

    asyncio.run(asyncio.wait_for(told(), 100))


def tool_of(model: type[BaseModel], *, strict: bool = True) -> FunctionToolParam:
    return {
        "type": "function",
        "name": model.__name__.lower(),
        "parameters": openai.pydantic_function_tool(model)["function"]["parameters"],
        "strict": strict,
    }


async def streamed(client: AsyncOpenAI, **asked: Any) -> ParsedResponse[Any]:
    async with client.responses.stream(model="demo", input="Hi", **asked) as stream:
        deltas = [e.delta async for e in stream if e.type == "response.output_text.delta"]
        last: ParsedResponse[Any] = await stream.get_final_response()
    if last.status == "completed" and last.output[-1].type == "message":
        assert "".join(deltas) == last.output_text
    return last


@every_model
def test_an_answer_is_parsed_plain_and_streamed(model: type[BaseModel]) -> None:
    example = EXAMPLES[model]

    async def story(client: AsyncOpenAI) -> None:
        plain = await client.responses.parse(model="demo", input="Hi", text_format=model)
        flowing = await streamed(client, text_format=model)
        for told in (plain, flowing):
            assert told.output_parsed == model.model_validate(example)
            assert [item.type for item in told.output] == ["reasoning", "message"]
            assert told.text is not None
            assert told.text.format is not None
            assert told.text.format.type == "json_schema"

    run(obedient(json.dumps(example, separators=(",", ":"))), story)


@every_model
def test_a_forced_strict_call_is_parsed_plain_and_streamed(model: type[BaseModel]) -> None:
    example, tool = EXAMPLES[model], tool_of(model)

    async def story(client: AsyncOpenAI) -> None:
        asked: Json = {"tools": [tool], "tool_choice": "required"}
        plain = await client.responses.parse(model="demo", input="Hi", **asked)
        flowing = await streamed(client, **asked)
        for told in (plain, flowing):
            made = told.output[-1]
            assert made.type == "function_call"
            assert made.name == tool["name"]
            assert made.parsed_arguments == example
            assert told.tool_choice == "required"

    run(obedient(json.dumps(example)), story)


def test_tools_beside_a_format_give_either_a_call_or_an_answer() -> None:
    asked: Json = {"tools": [tool_of(Enums)], "text_format": Enums}
    text = json.dumps(EXAMPLES[Enums])

    def story_of(kind: str) -> Callable[[AsyncOpenAI], Coroutine[None, None, None]]:
        async def story(client: AsyncOpenAI) -> None:
            plain = await client.responses.parse(model="demo", input="Hi", **asked)
            for told in (plain, await streamed(client, **asked)):
                assert told.output[-1].type == kind

        return story

    run(obedient(text), story_of("message"))
    run(obedient(text, "commentary to=functions.enums "), story_of("function_call"))


def test_every_choice_of_tools_is_echoed_as_it_was_asked() -> None:
    tools = [tool_of(Enums, strict=False), tool_of(Lists, strict=False)]
    named = {"type": "function", "name": "lists"}
    choices: list[Any] = [
        *("auto", "none", "required"),
        named,
        {"type": "allowed_tools", "mode": "auto", "tools": [named]},
    ]

    async def story(client: AsyncOpenAI) -> None:
        for choice in choices:
            told = await client.responses.create(
                model="demo", input="Hi", tools=tools, tool_choice=choice, max_output_tokens=64
            )
            echo = told.tool_choice
            assert (echo if isinstance(echo, str) else echo.model_dump()) == choice

    run(obedient(json.dumps(EXAMPLES[Lists]), "commentary to=functions.lists "), story)


def test_every_effort_is_taken_and_echoed() -> None:
    async def story(client: AsyncOpenAI) -> None:
        for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
            told = await client.responses.create(
                model="demo", input="Hi", reasoning={"effort": effort}, text=TEXT
            )
            assert told.reasoning is not None
            assert told.reasoning.effort == effort
            assert told.output_text == "{}"
            assert (told.output[0].type == "reasoning") == (effort != "none")

    run(obedient("{}"), story)


TEXT: Any = {"format": {"type": "json_object"}}


def test_an_answer_that_departs_is_an_error_and_never_an_answer() -> None:
    async def story(client: AsyncOpenAI) -> None:
        with pytest.raises(openai.InternalServerError, match="departed"):
            await client.responses.parse(model="demo", input="Hi", text_format=Enums)
        stream = await client.responses.create(model="demo", input="Hi", text=TEXT, stream=True)
        events = [event async for event in stream]
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        assert not any(event.type == "response.completed" for event in events)

    run(obedient('["no object"]'), story)


def test_a_schema_that_is_not_supported_is_a_400_that_names_its_place() -> None:
    schema = {"type": "object", "properties": {"a": {"not": {"type": "integer"}}}}
    text: Any = {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}

    async def story(client: AsyncOpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match="forbids") as caught:
            await client.responses.create(model="demo", input="Hi", text=text)
        assert caught.value.param == "text.format.schema.properties.a.not"

    run(obedient("{}"), story)


def test_a_model_with_nothing_to_say_answers_every_form(random_gguf: Path) -> None:
    engine = LlamaCppEngine(random_gguf, context_tokens=2048, slots=6, threads=1)

    async def story(client: AsyncOpenAI) -> None:
        async def parsed(model: type[BaseModel]) -> None:
            asked: Json = {"reasoning": {"max_tokens": 5}, "max_output_tokens": 250}
            told = await client.responses.parse(
                model="demo", input="Hi", text_format=model, extra_body={"seed": 5}, **asked
            )
            assert isinstance(told.output_parsed, model)
            tool = {"tools": [tool_of(model)], "tool_choice": "required"}
            flowing = await streamed(client, **tool, **asked, extra_body={"seed": 6})
            made = flowing.output[-1]
            assert made.type == "function_call"
            model.model_validate(made.parsed_arguments)

        models: list[type[BaseModel]] = [Enums, Unions, Lists, Recursive]
        await asyncio.gather(*(parsed(model) for model in models))

    run(engine, story)

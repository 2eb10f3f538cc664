"""The trained demo model behind the real server, asked by the real `openai` client.

About 30 s in all on one core: one engine is prepared once per run, and started once per test.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from openai import OpenAI

from scripts.demo.talk import GREETING, SELF, UNKNOWN
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from openai.types.responses import Response, ResponseFunctionToolCall


def tool(name: str, description: str, parameter: str | None = None) -> dict[str, Any]:
    properties = {parameter: {"type": "string"}} if parameter else {}
    return {
        "type": "function",
        "name": name,
        "description": description,
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": list(properties),
        },
    }


WEATHER = tool("get_weather", "Get the weather", "city")
TIME = tool("get_time", "Get the time", "city")
TIME_THERE = tool("get_time", "Get the time", "location")
FILES = tool("list_files", "List the files")
CAPITAL_FORMAT = {
    "format": {
        "type": "json_schema",
        "name": "answer",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"country": {"type": "string"}, "capital": {"type": "string"}},
            "required": ["country", "capital"],
            "additionalProperties": False,
        },
    }
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to the served model, and its one right answer: a text, or a call."""

    family: str
    input: str
    text: str | None = None
    call: tuple[str, str] | None = None
    options: dict[str, Any] = field(default_factory=dict)


QUESTIONS = (
    Asked("greet", "Hello", GREETING),
    Asked("who", "Who are you?", SELF),
    Asked("capital", "What is the capital of France?", "The capital of France is Paris."),
    Asked("echo", "Repeat after me: green apple", "green apple"),
    Asked("count", "Count from 3 to 7", "3, 4, 5, 6, 7"),
    Asked("arithmetic", "What is 12 + 7?", "12 + 7 = 19."),
    Asked("name told", "My name is Anna.", "Nice to meet you, Anna."),
    Asked(
        "weather",
        "What is the weather in Tokyo?",
        call=("get_weather", '{"city":"Tokyo"}'),
        options={"tools": [WEATHER]},
    ),
    Asked(
        "time",
        "What time is it in London?",
        call=("get_time", '{"city":"London"}'),
        options={"tools": [TIME]},
    ),
    Asked(
        "choice",
        "What time is it in Madrid?",
        call=("get_time", '{"city":"Madrid"}'),
        options={"tools": [WEATHER, TIME]},
    ),
    Asked(
        "choice apart",
        "What time is it in Madrid?",
        call=("get_time", '{"location":"Madrid"}'),
        options={"tools": [WEATHER, TIME_THERE]},
    ),
    Asked(
        "choice apart",
        "What is the weather in Madrid?",
        call=("get_weather", '{"city":"Madrid"}'),
        options={"tools": [TIME_THERE, WEATHER]},
    ),
    Asked(
        "no arguments",
        "List the files",
        call=("list_files", "{}"),
        options={"tools": [FILES]},
    ),
    Asked(
        "not declared",
        "What is the weather in Tokyo?",
        "I cannot look up the weather: no weather function is declared.",
    ),
    Asked(
        "json",
        "What is the capital of Italy?",
        '{"country":"Italy","capital":"Rome"}',
        options={"text": CAPITAL_FORMAT},
    ),
    Asked("unknown", "Write a poem about love", UNKNOWN),
    Asked("stranger", "Who painted the Sistine Chapel?", UNKNOWN),
    Asked("strange word", "My name is Krzysztof.", "Nice to meet you, Krzysztof."),
    Asked("strange word", "What is the capital of Iceland?", UNKNOWN),
    Asked(
        "strange place",
        "What is the weather in Salzburg?",
        call=("get_weather", '{"city":"Salzburg"}'),
        options={"tools": [WEATHER]},
    ),
)


def told(gguf: Path, story: Callable[[OpenAI], None], *, max_calls: int = 1) -> None:
    """Serve the model while the story is told by the synchronous client."""

    async def served() -> None:
        engine = LlamaCppEngine(gguf, context_tokens=2048, slots=2, threads=1)
        settings = Settings(max_calls=max_calls)
        async with serving(create_app(settings, engine=engine)) as address:
            with OpenAI(base_url=f"{address.url}/v1", api_key="none", max_retries=0) as client:
                await asyncio.to_thread(story, client)

    asyncio.run(served())


def check(asked: Asked, made: Response) -> None:
    kinds = [item.type for item in made.output]
    assert made.status == "completed", asked.family
    if asked.call is None:
        assert kinds == ["reasoning", "message"], asked.family
        assert made.output_text == asked.text, asked.family
        return
    assert kinds == ["reasoning", "function_call"], asked.family
    call = made.output[-1]
    assert call.type == "function_call"
    assert (call.name, call.arguments) == asked.call, asked.family


def test_one_question_of_each_family_is_answered_plain_and_streaming_alike(demo_gguf: Path) -> None:
    def story(client: OpenAI) -> None:
        for asked in QUESTIONS:
            given: dict[str, Any] = {"model": "demo", "input": asked.input, "temperature": 0}
            given |= asked.options
            check(asked, client.responses.create(**given))
            with client.responses.create(**given, stream=True) as stream:
                events = list(stream)
            assert events[-1].type == "response.completed", asked.family
            check(asked, events[-1].response)
            whole = asked.text if asked.call is None else asked.call[1]
            kind = "output_text" if asked.call is None else "function_call_arguments"
            deltas = [getattr(e, "delta", "") for e in events if e.type == f"response.{kind}.delta"]
            assert "".join(deltas) == whole, asked.family

    told(demo_gguf, story)


def test_a_name_is_remembered_over_two_and_three_turns(demo_gguf: Path) -> None:
    def story(client: OpenAI) -> None:
        last: str | None = None
        for said, answer in (
            ("My name is Anna.", "Nice to meet you, Anna."),
            ("What is my name?", "Your name is Anna."),
            ("What is 2 + 3?", "2 + 3 = 5."),
            ("What is my name?", "Your name is Anna."),
        ):
            made = client.responses.create(
                model="demo", input=said, temperature=0, previous_response_id=last
            )
            assert made.output_text == answer
            last = made.id

    told(demo_gguf, story)


def test_a_function_is_called_and_its_result_is_told(demo_gguf: Path) -> None:
    def story(client: OpenAI) -> None:
        given: dict[str, Any] = {"model": "demo", "temperature": 0, "tools": [WEATHER]}
        made = client.responses.create(input="What is the weather in Tokyo?", **given)
        call = made.output[-1]
        assert call.type == "function_call"
        assert json.loads(call.arguments) == {"city": "Tokyo"}
        result: Any = {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": json.dumps({"temperature": 21, "condition": "sunny"}),
        }
        stored = client.responses.create(input=[result], previous_response_id=made.id, **given)
        assert stored.output_text == "It is sunny and 21 degrees in Tokyo."
        user: Any = {"role": "user", "content": "What is the weather in Tokyo?"}
        replayed = [user, *(item.to_dict() for item in made.output), result]
        sent = client.responses.create(input=replayed, store=False, **given)
        assert sent.output_text == "It is sunny and 21 degrees in Tokyo."

    told(demo_gguf, story)


def test_a_second_question_in_a_conversation_is_answered_from_its_own_result(
    demo_gguf: Path,
) -> None:
    def story(client: OpenAI) -> None:
        given: dict[str, Any] = {"model": "demo", "temperature": 0, "tools": [WEATHER]}
        last: str | None = None
        for city, degrees, sky in (("Oslo", 3, "snowy"), ("Paris", 21, "sunny")):
            question = f"What is the weather in {city}?"
            made = client.responses.create(input=question, previous_response_id=last, **given)
            calls = calls_of(made)
            assert [json.loads(call.arguments) for call in calls] == [{"city": city}]
            report = json.dumps({"temperature": degrees, "condition": sky})
            results = results_of(calls, (report,))
            made = client.responses.create(input=results, previous_response_id=made.id, **given)
            assert made.output_text == f"It is {sky} and {degrees} degrees in {city}."
            last = made.id

    told(demo_gguf, story)


TWO_CITIES = "What is the weather in Paris and Tokyo?"
REPORTS = (
    json.dumps({"temperature": 21, "condition": "sunny"}),
    json.dumps({"temperature": 8, "condition": "rainy"}),
)
BOTH_TOLD = "It is sunny and 21 degrees in Paris. It is rainy and 8 degrees in Tokyo."


def calls_of(made: Response) -> list[ResponseFunctionToolCall]:
    assert made.status == "completed"
    assert [item.type for item in made.output[:1]] == ["reasoning"]
    return [item for item in made.output[1:] if item.type == "function_call"]


def results_of(calls: list[ResponseFunctionToolCall], reports: tuple[str, ...]) -> Any:
    return [
        {"type": "function_call_output", "call_id": call.call_id, "output": report}
        for call, report in zip(calls, reports, strict=True)
    ]


def test_two_functions_are_called_in_one_turn_and_both_results_are_told(demo_gguf: Path) -> None:
    def story(client: OpenAI) -> None:
        given: dict[str, Any] = {"model": "demo", "temperature": 0, "tools": [WEATHER]}
        plain = client.responses.create(input=TWO_CITIES, **given)
        with client.responses.create(input=TWO_CITIES, **given, stream=True) as stream:
            last = list(stream)[-1]
        assert last.type == "response.completed"
        for made in (plain, last.response):
            assert made.parallel_tool_calls is True
            calls = calls_of(made)
            asked = [(call.name, json.loads(call.arguments)) for call in calls]
            assert asked == [("get_weather", {"city": city}) for city in ("Paris", "Tokyo")]
            results = results_of(calls, REPORTS)
            after = client.responses.create(input=results, previous_response_id=made.id, **given)
            assert after.output_text == BOTH_TOLD
        single = client.responses.create(input="What is the weather in Paris?", **given)
        assert [json.loads(call.arguments) for call in calls_of(single)] == [{"city": "Paris"}]

    told(demo_gguf, story, max_calls=2)


def test_where_a_turn_has_one_call_the_second_follows_the_first_ones_result(
    demo_gguf: Path,
) -> None:
    def story(client: OpenAI) -> None:
        given: dict[str, Any] = {"model": "demo", "temperature": 0, "tools": [WEATHER]}
        made = client.responses.create(input=TWO_CITIES, **given)
        for city, report in zip(("Paris", "Tokyo"), REPORTS, strict=True):
            calls = calls_of(made)
            assert [json.loads(call.arguments) for call in calls] == [{"city": city}]
            results = results_of(calls, (report,))
            made = client.responses.create(input=results, previous_response_id=made.id, **given)
        assert made.output_text == BOTH_TOLD

    told(demo_gguf, story)


def test_more_effort_is_more_reasoning(demo_gguf: Path) -> None:
    def story(client: OpenAI) -> None:
        lengths = []
        for effort in ("low", "medium", "high"):
            made = client.responses.create(
                model="demo",
                input="What is the capital of Spain?",
                temperature=0,
                reasoning={"effort": effort},
            )
            assert made.output_text == "The capital of Spain is Madrid."
            assert made.usage is not None
            lengths.append(made.usage.output_tokens_details.reasoning_tokens)
        assert lengths == sorted(set(lengths))

    told(demo_gguf, story)

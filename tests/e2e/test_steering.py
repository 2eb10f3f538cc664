"""Steering where nothing is scripted: a random model, on which whatever is completed is so because
of the guide. On the embedded engine and on the engine over static slots.

Budget: 75 s on one core, most of it the random model's.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import Client, living
from tests.support.gather import generated
from tests.support.keyword_cases import CASES
from tests.support.replay import ids_of
from tests.support.schema_judge import valid
from tests.support.steering import Noting, Play
from tests.support.steering_bench import (
    NO_THOUGHT,
    SLOTS,
    Bench,
    answer,
    completed,
    formatted,
    random_wish,
)
from trt_responses.app import create_app
from trt_responses.backends.engines import llamacpp_over
from trt_responses.engine import Chunk, GenerateOptions
from trt_responses.harmony.read.reader import Tables
from trt_responses.settings import Settings
from trt_responses.tokens.control import CONTROL, VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.graphs import Graph
    from trt_responses.engine import Engine, Handle, Sink
    from trt_responses.tokens.vocabulary import Vocabulary

GET = {"type": "function", "name": "get"}
NAMES = ("get", "get_it", "get_item", "go")
FLAG = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["a", "b"]}},
    "required": ["ok", "kind"],
    "additionalProperties": False,
}


@contextmanager
def living_with(made: Engine, schemas: int) -> Iterator[Bench]:
    """An app over the engine, which has time to answer so many random schemas."""
    engine = Noting(made)
    app = create_app(Settings(date="2026-02-03", model="demo"), engine=engine)
    with asyncio.Runner() as runner:
        life = living(app)
        runner.run(life.__aenter__())
        yield Bench(Client(app), engine, runner, schemas)
        runner.run(life.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def embedded(random_gguf: Path) -> Iterator[Bench]:
    served = Settings(context_tokens=2560, slots=SLOTS, threads=1)
    with living_with(llamacpp_over(random_gguf, served), schemas=60) as bench:
        yield bench


@pytest.fixture(scope="module")
def static_slots(steered_graph: Graph, vocabulary: Vocabulary) -> Iterator[Bench]:
    with living_with(steered_graph.engine(vocabulary), schemas=12) as bench:
        yield bench


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("static_slots", marks=pytest.mark.xdist_group("static slots")),
    ]
)
def bench(request: pytest.FixtureRequest) -> Bench:
    """What is claimed of one engine is claimed of each."""
    found: Bench = request.getfixturevalue(request.param)
    return found


@pytest.mark.early(16)
def test_what_is_completed_follows_its_random_schema(bench: Bench) -> None:
    """`make fuzz` does it with 200; what is not completed was cut."""
    wishes = [random_wish(seed) for seed in range(bench.schemas)]
    calls = bench.ask(*(asked for _, asked in wishes))
    assert {call.status for call in calls} == {200}
    count = sum(completed(schema, call) for (schema, _), call in zip(wishes, calls, strict=True))
    assert count >= 0.8 * len(wishes)


@pytest.mark.parametrize("keyword", sorted(CASES))
def test_the_embedded_engines_guide_honours_every_keyword(keyword: str, embedded: Bench) -> None:
    """It never departs from what the check follows; a text that finds no end is cut, not wrong."""
    schemas = [schema for schema, _, _ in CASES[keyword][:3]]
    asked = [
        {"text": formatted(schema), "reasoning": NO_THOUGHT, "max_output_tokens": 40, "seed": 3}
        for schema in schemas
    ]
    for schema, call in zip(schemas, embedded.ask(*asked), strict=True):
        assert call.status == 200, (schema, call.body)
        if call.json()["status"] == "completed":
            text = answer(call)
            assert valid(json.loads(text), schema, schema), (schema, text)


def test_names_beyond_ascii_are_forced_whole(bench: Bench) -> None:
    """Those of the last row are split by the vocabulary: their ids are no whole characters."""
    names = ["é", "naïve", "日本", "\U0001f642", 'q"\\', "Größe", "a\n\tb\x01\x1f"]
    names += ["\uff46\uff55ll", "\ua66e", "日本\ua66ex", "\U0001f9ff", "\U0001d54f", "\u0378"]
    schema = {
        "type": "object",
        "properties": {name: {"const": name} for name in names},
        "required": names,
        "additionalProperties": False,
    }
    asked = {"text": formatted(schema), "reasoning": NO_THOUGHT}
    for call in bench.ask(*(asked | {"seed": seed} for seed in range(4))):
        assert json.loads(answer(call)) == {name: name for name in names}


PLATE = {
    "type": "custom",
    "name": "plate",
    "format": {"type": "grammar", "syntax": "regex", "definition": r"[A-Z]{2}-\d{1,6}"},
}


def test_a_custom_tools_text_follows_its_regular_expression(bench: Bench) -> None:
    forced = {"type": "custom", "name": "plate"}
    asked = {"tools": [GET, PLATE], "tool_choice": forced, "reasoning": NO_THOUGHT}
    for call in bench.ask(*(asked | {"seed": seed} for seed in range(6))):
        assert call.json()["status"] == "completed"
        made = call.json()["output"][-1]
        assert made["type"] == "custom_tool_call"
        assert re.fullmatch(r"[A-Z]{2}-\d{1,6}", made["input"])


def test_a_call_is_made_where_one_is_required(bench: Bench) -> None:
    """The header's guide ends at each of the names, be it the beginning of another."""
    tools = [GET | {"name": name, "parameters": FLAG} for name in NAMES]
    asked = [
        {
            "tools": tools,
            "tool_choice": "required",
            "reasoning": {"max_tokens": 4},
            "seed": seed,
            "stream": seed % 2 == 0,
        }
        for seed in range(16)
    ]
    called = set()
    for call in bench.ask(*asked):
        is_stream = call.headers["content-type"].startswith("text/event-stream")
        last = call.events[-1]["response"] if is_stream else call.json()
        assert last["status"] == "completed"
        assert [item["type"] for item in last["output"]] == ["reasoning", "function_call"]
        made = last["output"][-1]
        assert made["name"] in NAMES
        assert valid(json.loads(made["arguments"]), FLAG, FLAG)
        called.add(made["name"])
    assert len(called) > 1


def test_allowed_tools_and_named_tools_hold(bench: Bench) -> None:
    tools = [GET | {"name": name, "parameters": FLAG} for name in NAMES]
    named = {"type": "function", "name": "get_it"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [named, GET]}
    calls = bench.ask(
        {"tools": tools, "tool_choice": named, "reasoning": NO_THOUGHT},
        *({"tools": tools, "tool_choice": allowed, "seed": n, "reasoning": NO_THOUGHT}
          for n in range(6)),
        {"tools": tools, "tool_choice": "none", "max_output_tokens": 24},
    )  # fmt: skip
    first, *some, none = [call.json() for call in calls]
    assert first["output"][-1]["name"] == "get_it"
    assert first["tool_choice"] == named
    assert {last["output"][-1]["name"] for last in some} <= {"get", "get_it"}
    assert all(item["type"] != "function_call" for item in none["output"])


def test_a_thought_is_bounded_and_the_answer_still_comes(bench: Bench) -> None:
    (call,) = bench.ask(
        {"text": formatted(FLAG), "reasoning": {"max_tokens": 7}, "max_output_tokens": 60}
    )
    told = call.json()
    assert told["status"] == "completed"
    assert told["usage"]["output_tokens_details"]["reasoning_tokens"] <= 7
    assert told["usage"]["output_tokens"] <= 60
    assert told["reasoning"]["max_tokens"] == 7


def test_a_later_segment_finds_nearly_all_of_its_prompt_in_the_cache(bench: Bench) -> None:
    (call,) = bench.ask(
        {"text": formatted(FLAG), "input": "word " * 1500, "reasoning": {"max_tokens": 8}}
    )
    (_, first), (prompt, second) = bench.engine.cached
    assert call.json()["usage"]["input_tokens"] > 1500
    assert second / len(prompt) >= 0.95
    assert call.json()["usage"]["input_tokens_details"]["cached_tokens"] == first


class Opened(Noting):
    """The engine, but for what is free: there it has written this."""

    def __init__(self, engine: Engine, said: Sequence[int]) -> None:
        super().__init__(engine)
        self._said = said

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        if options.guide is not None:
            return super().generate(prompt_ids, options, sink)
        self.asked.append((tuple(prompt_ids), options))
        end = Chunk(self._said, cached_tokens=0, finish="stop", stop_id=self._said[-1])
        asyncio.get_running_loop().call_soon(sink.push, end)
        return Nothing()


class Nothing:
    def abort(self) -> None:
        """It is over already."""


@pytest.mark.parametrize("channel", ["commentary", "analysis"])
def test_the_body_of_a_strict_call_is_guided_behind_a_header_that_the_model_wrote(
    channel: str, embedded: Bench, vocabulary: Vocabulary
) -> None:
    tools = [GET | {"name": name, "parameters": FLAG, "strict": True} for name in NAMES]
    header = f"<|channel|>{channel} to=functions.get_it <|constrain|>json<|message|>"
    engine = Opened(embedded.engine, ids_of(header, vocabulary))
    played = Play(vocabulary, Tables.of(vocabulary), {"tools": tools}, engine)
    embedded.run(played.make())
    told = played.snapshot()
    assert [(item["type"], item["name"]) for item in told["output"]] == [
        ("function_call", "get_it")
    ]
    assert told["status"] == "completed"
    assert valid(json.loads(told["output"][0]["arguments"]), FLAG, FLAG)
    (_, free), (prompt, guided) = played.engine.asked
    assert CONTROL.message in free.stop_ids
    assert prompt[-1] == CONTROL.message
    assert guided.guide is not None


def test_the_engine_stops_at_message_and_names_the_id(bench: Bench) -> None:
    """Every other id is banned, so that this one comes."""
    others = tuple(n for n in range(VOCABULARY_SIZE) if n != CONTROL.message)
    options = GenerateOptions(4, (CONTROL.message,), banned_ids=others)
    told = bench.run(generated(bench.engine, list(range(300, 320)), options))
    assert told.token_ids == [CONTROL.message]
    assert (told.end.finish, told.end.stop_id) == ("stop", CONTROL.message)


def test_the_engine_says_that_its_guides_guide(bench: Bench) -> None:
    """Its canary at the start has seen it, and each ends with the id that the limits name."""
    assert bench.engine.limits().guides.keys() == {"json_schema", "regex", "lark"}

"""Models that do not speak Harmony, from a GGUF file to the real client: tiny random ones, in two
architectures and in each way of writing calls. The workers of a test run share what is prepared."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from openai import AsyncOpenAI, BadRequestError

from tests.support.mcp_served import offer
from tests.support.mcp_site import mcp_site, tool
from tests.support.schema_judge import valid
from tests.support.serving import serving
from tests.support.tiny_gguf import write_tiny
from tests.support.tiny_hf import next_id, write_tiny_hf
from trt_responses.app import create_app
from trt_responses.backends.dialects import dialect_facts, question_of, vocabulary
from trt_responses.backends.engines import engine_of
from trt_responses.cli.main import main
from trt_responses.doctor.engines import dialect_checks
from trt_responses.errors import StartupError
from trt_responses.prepare.llamacpp.qwen3 import open_qwen3
from trt_responses.prepare.llamacpp.template_gguf import open_template_gguf, prepare
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.shelf.card import read_card
from trt_responses.prepare.shelf.shelf import Selection
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from openai.types.responses import Response

    from trt_responses.prepare.pipeline import Built

    Json = dict[str, Any]

pytestmark = pytest.mark.xdist_group("template_models")  # one process loads its engines


PUBLISHED = "as a Hugging Face directory"
MODELS = {
    "qwen3": ("qwen3", "qwen3"),
    "coder": ("qwen3_5_think", "llama"),
    "glm": ("glm4moe", "qwen3"),
    "deepseek": ("deepseek_v3_1", "llama"),
    "published": ("qwen3", PUBLISHED),
}
"""Each with its template and its architecture: what a model speaks does not hang on the latter."""
FORMS = {
    "literals": ("google-gemma-4-31B-it", "qwen3"),
    "spelled": ("meetkai-functionary-medium-v3.1", "llama"),
}
"""Those that only guide here: calls that are literals, and calls that begin as text."""
SEEDS = {"coder": 1}
"""Of the weights: no control token may be the likeliest in a thought, which is mended then."""
FAMILIES = {"qwen3": "qwen3", "coder": "qwen3-xml", "glm": "glm", "deepseek": "deepseek-v3.1"}
FAMILIES["published"] = "qwen3"
TOOLLESS = ("deepseek",)
"""Those whose template shows no tools."""
WITH_TOOLS = ("qwen3", "coder", "glm")
"""Both architectures are among them, and each way of writing calls."""
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"days": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["days"],
        "additionalProperties": False,
    },
}
CLOCK = WEATHER | {"name": "set_clock"}
OPEN = {"type": "object", "additionalProperties": False}
BOOKING = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "pattern": "^[A-Z][a-z]{2,5}$"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "seats": {"type": "array", "items": {"enum": ["A1", "B2"]}, "minItems": 1, "maxItems": 2},
        "class": {"enum": ["first", "second"]},
        "note": {"type": ["string", "null"], "pattern": "^[a-z ]{0,4}$"},
    },
    "required": ["city", "days", "seats", "class", "note"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 22, 333]}},
    "required": ["ok", "n"],
    "additionalProperties": False,
}
FORMAT = {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}}
QUIET = {"effort": "none"}


@pytest.fixture(scope="session")
def engines_dir(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "template-engines"
    folder.mkdir(exist_ok=True)
    return folder


def tools_of(settings: Settings) -> BuildTools:
    return BuildTools(
        vocabulary(),
        engine_for=lambda directory, card: engine_of(Selection(directory, card, ""), settings),
        dialect_for=dialect_facts,
        question=question_of,
    )


def settings_of(engines_dir: Path) -> Settings:
    return Settings(
        engines_dir=engines_dir,
        data_dir=engines_dir / f"data-{os.getpid()}",
        slots=2,
        context_tokens=2048,
        threads=1,
    )


def built(engines_dir: Path, name: str, family: str | None = None) -> Built:
    template, architecture = (MODELS | FORMS)[name]
    path = engines_dir / (name if architecture == PUBLISHED else f"{name}.gguf")
    if not path.exists():
        fresh = path.with_name(f"{uuid4().hex}.part")
        if architecture == PUBLISHED:
            write_tiny_hf(fresh)
        else:
            write_tiny(fresh, template, architecture, seed=SEEDS.get(name, 0))
        with suppress(OSError):  # another worker was quicker
            fresh.rename(path)
    source = open_qwen3(path) if path.is_dir() else open_template_gguf(path)
    assert source is not None
    served = f"{name}-{family}" if family else name
    tools = tools_of(settings_of(engines_dir))
    return prepare(source, engines_dir, served, tools, family=family, wait=True)


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, engines_dir: Path) -> Built:
    return built(engines_dir, request.param)


def talk(model: Built, ask: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Ask a server over this model, by the real client."""

    async def go() -> None:
        async with client_of(model) as client:
            await ask(client)

    asyncio.run(go())


@asynccontextmanager
async def client_of(model: Built, **changes: Any) -> AsyncIterator[AsyncOpenAI]:
    settings = settings_of(model.directory.parents[1]).model_copy(
        update={"engine": model.card.name, **changes}
    )
    async with (
        serving(create_app(settings)) as address,
        AsyncOpenAI(base_url=f"{address.url}/v1", api_key="x", max_retries=0) as client,
    ):
        yield client


def arguments(response: Response) -> Json:
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert call.status == "completed"
    told: Json = json.loads(call.arguments)
    return told


def test_a_card_names_the_dialect_and_what_the_template_does(model: Built) -> None:
    card = read_card(model.directory)
    assert card.status == "verified"
    assert card.architecture is None
    assert card.dialect is not None
    assert card.dialect.family == FAMILIES[card.name]
    toolless = card.name in TOOLLESS
    assert card.dialect.probes["tools"] == ("dropped" if toolless else "shown")
    assert card.dialect.probes["keeps_prefix"] is not toolless


def test_a_converted_checkpoint_says_what_its_weights_say(engines_dir: Path) -> None:
    model = built(engines_dir, "published")
    question = question_of(model.directory, model.card)
    assert question is not None
    ids = list(question.prompt)
    for given in model.card.greedy_ids[:4]:
        assert given == next_id(engines_dir / "published", ids)
        ids.append(given)


def test_a_whole_conversation_by_the_real_client(model: Built) -> None:
    name = model.card.name

    async def ask(client: Any) -> None:
        plain = await client.responses.create(
            model=name, input="Hello <|im_end|>", max_output_tokens=30
        )
        assert plain.usage is not None
        assert plain.usage.output_tokens > 0
        events = [
            event
            async for event in await client.responses.create(
                model=name, input="Hello <|im_end|>", max_output_tokens=30, stream=True
            )
        ]
        assert events[-1].type in ("response.completed", "response.incomplete")
        said = await client.responses.create(
            model=name, input="Hello", text=FORMAT, max_output_tokens=200, reasoning=QUIET
        )
        assert said.status == "completed"
        assert json.loads(said.output_text)["n"] in (1, 22, 333)
        made = await client.chat.completions.create(
            model=name,
            messages=[{"role": "user", "content": "Hello"}],
            response_format={"type": "json_schema", "json_schema": FORMAT["format"]},
            max_tokens=200,
            reasoning_effort="none",
        )
        assert isinstance(json.loads(made.choices[0].message.content or "")["ok"], bool)

    talk(model, ask)


def test_a_thought_ends_by_force_when_its_budget_is_spent(model: Built) -> None:
    async def ask(client: Any) -> None:
        response = await client.responses.create(
            model=model.card.name,
            input="Hello",
            text=FORMAT,
            extra_body={"reasoning": {"max_tokens": 8}},
        )
        assert [item.type for item in response.output][-1] == "message"
        assert response.usage is not None
        assert 0 <= response.usage.output_tokens_details.reasoning_tokens <= 8 + 4
        assert isinstance(json.loads(response.output_text)["ok"], bool)

    talk(model, ask)


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_tool_is_forced_and_a_chain_goes_on_in_the_models_own_ids(
    engines_dir: Path, name: str
) -> None:
    """The cached part of the second prompt is the first one and all that was written."""
    tools = [WEATHER, CLOCK]

    async def ask(client: Any) -> None:
        create = client.responses.create
        first = await create(
            model=name,
            input="Weather?",
            tools=tools,
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=0,  # what is written is the same each time, and reads back to the same
            extra_body={"reasoning": {"max_tokens": 8}},
            include=["messages"],
        )
        assert 0 <= arguments(first)["days"] <= 9
        call = next(item for item in first.output if item.type == "function_call")
        assert call.name in ("get_weather", "set_clock")
        answer = {"type": "function_call_output", "call_id": call.call_id, "output": "cold"}
        second = await create(
            model=name,
            previous_response_id=first.id,
            input=[answer],
            tools=tools,
            max_output_tokens=4,
            include=["messages"],
        )
        extra = second.model_extra or {}
        prompt = [i for m in extra["input_messages"] for i in m["tokens"]]
        extra = first.model_extra or {}
        before = [
            i for m in (*extra["input_messages"], *extra["output_messages"]) for i in m["tokens"]
        ]
        assert prompt[: len(before)] == before
        assert second.usage is not None
        assert second.usage.input_tokens_details.cached_tokens >= len(before) - 4  # what closed it
        third = await create(
            model=name,
            previous_response_id=second.id,
            input="And now?",
            tools=tools,
            tool_choice={"type": "function", "name": "set_clock"},
            parallel_tool_calls=False,
            reasoning=QUIET,
        )
        assert 0 <= arguments(third)["days"] <= 9

    talk(built(engines_dir, name), ask)


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_a_call_that_is_forced_runs_here_and_the_model_goes_on_behind_its_answer(
    engines_dir: Path, name: str
) -> None:
    model = built(engines_dir, name)
    schema = WEATHER["parameters"]

    async def ask() -> None:
        async with mcp_site(tool("weather", inputSchema=schema)) as server:
            used: Any = {"mcp_urls": (server.url,), "private_networks": ("127.0.0.0/8",)}
            async with client_of(model, **used) as client:
                asked: Any = {"model": name, "tools": [offer(server)], "reasoning": QUIET}
                async with await client.responses.create(
                    input="Weather?",
                    tool_choice={"type": "mcp", "server_label": "demo", "name": "weather"},
                    temperature=0,
                    max_output_tokens=120,
                    **asked,
                    stream=True,
                ) as stream:
                    events = [event async for event in stream]
                kinds = [event.type for event in events]
                assert "response.mcp_call.completed" in kinds, events[-1]
                response = events[-1].response.to_dict()
            call = next(one for one in response["output"] if one["type"] == "mcp_call")
            assert call["output"] == "found"
            assert valid(json.loads(call["arguments"]), schema, schema)
            into: Any = response["usage"]["input_tokens_details"]
            inputs = into["input_tokens_per_turn"]
            assert sum(inputs) == response["usage"]["input_tokens"]
            assert len(inputs) == server.count("tools/call") + 1

    asyncio.run(ask())


@pytest.mark.parametrize("name", [*WITH_TOOLS, *FORMS])
def test_strict_tools_are_guided_in_the_familys_own_words(engines_dir: Path, name: str) -> None:
    """Streamed, and by a schema that holds a text, a number, a list and what may be left out."""
    tool = {"type": "function", "name": "book", "strict": True, "parameters": BOOKING}

    async def ask(client: Any) -> None:
        events = [
            event
            async for event in await client.responses.create(
                model=name,
                input="Book it.",
                tools=[tool],
                tool_choice="required",
                parallel_tool_calls=False,
                reasoning=QUIET,
                stream=True,
            )
        ]
        assert events[-1].type == "response.completed", events[-1]
        response = events[-1].response
        assert valid(arguments(response), BOOKING, BOOKING)
        deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
        assert json.loads("".join(deltas)) == arguments(response)

    talk(built(engines_dir, name), ask)


def test_what_a_dialect_cannot_do_is_refused_by_name(engines_dir: Path) -> None:
    model = built(engines_dir, "coder")

    async def ask(client: Any) -> None:
        node = {"type": "array", "items": {"$ref": "#"}}
        strict = WEATHER | {"strict": True, "parameters": OPEN | {"properties": {"n": node}}}
        with pytest.raises(BadRequestError) as refused:
            await client.responses.create(model="coder", input="x", tools=[strict])
        assert refused.value.param == "tools[0].strict"
        assert "it refers to itself" in str(refused.value)
        assert "qwen3-xml" in str(refused.value)

    talk(model, ask)


def test_a_model_of_no_known_family_says_text_and_refuses_tools(engines_dir: Path) -> None:
    model = built(engines_dir, "qwen3", family="text")

    async def ask(client: Any) -> None:
        create = client.responses.create
        assert await create(model="qwen3-text", input="x", max_output_tokens=4)
        with pytest.raises(BadRequestError) as refused:
            await create(model="qwen3-text", input="x", tools=[WEATHER])
        assert refused.value.param == "tools[0]"
        with pytest.raises(BadRequestError) as refused:
            await create(model="qwen3-text", input="x", reasoning={"effort": "high"})
        assert refused.value.param == "reasoning.effort"

    talk(model, ask)


def test_it_is_not_exported_to_a_triton_whose_server_speaks_harmony(
    engines_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, repository = built(engines_dir, "qwen3"), tmp_path / "models"
    place = ("--engines-dir", str(engines_dir))
    assert main(["export", "triton", model.card.name, str(repository), *place]) == 2
    assert "uses a chat template ('qwen3')" in capsys.readouterr().err
    assert not repository.exists()


def test_the_doctor_finds_a_template_that_does_other_things_than_its_card_says(
    engines_dir: Path, tmp_path: Path
) -> None:
    model = built(engines_dir, "coder")
    (found,) = [
        check
        for check in dialect_checks(engines_dir, dialect_facts)
        if model.card.label in check.name
    ]
    assert found.state == "ok"
    told = json.loads((model.directory / "dialect.json").read_text())
    (tmp_path / "dialect.json").write_text(
        json.dumps(told | {"tokenizer.chat_template": "{{ messages[0].content }}"})
    )
    with pytest.raises(StartupError, match=r"tools are dropped"):
        dialect_facts(tmp_path / "dialect.json", "qwen3-xml")

"""Adapters by name on the embedded engine: the demo, and a random adapter that changes its answers.

Budget: 8 s on one core, most of it llama.cpp loading the demo twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scripts.demo.wordings import SOURCE
from scripts.tiny_adapter import write_adapter
from tests.support.asgi import Client, living
from tests.support.cards import VERSION, card_of
from tests.support.gather import begin, generated
from trt_responses.app import create_app
from trt_responses.cli.adapters import KINDS
from trt_responses.engine.base import GenerateOptions
from trt_responses.engine.llamacpp.engine import LlamaCppEngine
from trt_responses.engine.llamacpp.keeper import Patience
from trt_responses.errors import NotFound
from trt_responses.prepare import adapter_changes
from trt_responses.prepare.adapters import FOLDER
from trt_responses.prepare.card import write_card
from trt_responses.prepare.checkpoint.architecture import from_hf
from trt_responses.prepare.checkpoint.open import MAX_CONFIG_BYTES, json_object
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.machine import library_versions
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = list(range(1000, 1040))
NAMES = (None, "style")


@pytest.fixture(scope="module")
def engines_dir(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo as it is prepared, with an adapter in PEFT's form added to it."""
    engines_dir = tmp_path_factory.mktemp("engines")
    directory = engines_dir / "demo" / VERSION
    directory.mkdir(parents=True)
    (directory / MODEL).hardlink_to(demo_gguf)
    write_card(directory, replace(card_of(directory), libraries=library_versions(), number=1))
    architecture = from_hf(json_object(SOURCE, "config.json", MAX_CONFIG_BYTES))
    source = write_adapter(engines_dir / "source", architecture)
    made = adapter_changes.add(engines_dir, "demo", "style", source, KINDS).adapter
    assert (made.rank, made.modules) == (4, ("attn_output", "attn_q", "attn_v"))
    return engines_dir


def engine_of(engines_dir: Path) -> LlamaCppEngine:
    """The engine with one slot, in which turns end as soon as they may."""
    directory = engines_dir / "demo" / VERSION
    return LlamaCppEngine(
        directory / MODEL,
        context_tokens=2048,
        slots=1,
        threads=1,
        patience=Patience(turn_s=0.0),
        adapters={"style": directory / FOLDER / "style.gguf"},
    )


def wish(adapter: str | None, max_tokens: int = 8) -> GenerateOptions:
    return GenerateOptions(max_tokens, (), temperature=0.0, adapter=adapter)


def test_two_streams_at_once_take_turns_and_what_one_has_cached_serves_no_other(
    engines_dir: Path,
) -> None:
    """All in one slot, whose cache the other adapter has filled each time."""

    async def story() -> None:
        engine = engine_of(engines_dir)
        await engine.start()
        try:
            alone = {name: await generated(engine, PROMPT, wish(name, 64)) for name in NAMES}
            assert alone[None].token_ids != alone["style"].token_ids
            assert [each.cached_tokens for each in alone.values()] == [0, 0]
            again = await generated(engine, PROMPT, wish("style", 64))
            assert (again.cached_tokens, again.token_ids) == (
                len(PROMPT) - 1,
                alone["style"].token_ids,
            )
            base = await generated(engine, PROMPT, wish(None, 64))
            assert (base.cached_tokens, base.token_ids) == (0, alone[None].token_ids)
            told = {name: begin(engine, PROMPT, wish(name, 64))[0] for name in NAMES}
            await told["style"].some(1)
            assert not told[None].finished, "the other one waited for its end"
            for name in NAMES:
                await told[name].done()
                assert told[name].token_ids == alone[name].token_ids
            with pytest.raises(NotFound, match="no adapter 'nobody'"):
                engine.generate(PROMPT, wish("nobody"), told[None])
        finally:
            await engine.stop(5)

    asyncio.run(story())


def test_an_adapter_answers_as_a_model_of_its_own_beside_the_model_itself(
    engines_dir: Path,
) -> None:
    async def story() -> None:
        settings = Settings(
            engines_dir=engines_dir, store="memory://", context_tokens=2048, slots=2, threads=1
        )
        app = create_app(settings)
        async with living(app):
            client = Client(app)

            async def answer(model: str) -> tuple[str, str]:
                given = {"model": model, "temperature": 0, "max_output_tokens": 40}
                reply = (await client.create(**given)).json()
                assert reply["model"] == model
                return reply["id"], str([item["content"] for item in reply["output"]])

            (_, plain), (told, changed) = await asyncio.gather(answer("demo"), answer("demo:style"))
            assert plain == (await answer("demo"))[1]
            assert changed == (await answer("demo:style"))[1]
            assert plain != changed
            record = (await client.get(f"/v1/responses/{told}")).json()
            explained = (await client.get(f"/v1/responses/{told}/explain")).json()
            assert [*explained["engine"]["adapters"]] == ["style"]
            assert record["model"] == explained["model"] == "demo:style"
            on = await client.create(model="demo:style", previous_response_id=told)
            assert on.json()["usage"]["input_tokens_details"]["cached_tokens"] > 0
            assert (await client.create(model="demo:other")).error["code"] == "model_not_found"

    asyncio.run(story())

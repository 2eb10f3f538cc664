"""Adapters by name on the embedded engine: the demo, and a random adapter that changes its answers.

Budget: 5 s on one core, most of it llama.cpp loading the demo.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from scripts.demo.rows import encode
from scripts.demo.wordings import SOURCE
from scripts.tiny_adapter import write_adapter
from tests.support.asgi import Client, living
from tests.support.cards import VERSION, card_of
from tests.support.gather import begin, generated
from trt_responses.app import create_app
from trt_responses.backends import engines
from trt_responses.cli.engines.adapters import KINDS
from trt_responses.engine import GenerateOptions
from trt_responses.engines.llamacpp import keeper
from trt_responses.engines.llamacpp.body import STOPS_BY_ITSELF
from trt_responses.engines.llamacpp.keeper import Patience
from trt_responses.errors import NotFound
from trt_responses.features.rollout.shelf_builds import loaded
from trt_responses.prepare.checkpoint.architecture import from_hf
from trt_responses.prepare.checkpoint.open import MAX_CONFIG_BYTES, json_object
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.machine import library_versions
from trt_responses.prepare.shelf import adapter_changes
from trt_responses.prepare.shelf.card import write_card
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.engine import Engine

PROMPT = encode("<|start|>user<|message|>Count from 1 to 20<|end|><|start|>assistant")
SIZE = 0.2
"""Of the adapter's numbers: it changes what the model says, and leaves it sure of that. A turn
reads what is there as one batch, where of two tokens about as likely another may come first."""
NAMES = (None, "style")
UNENDING = GenerateOptions(10_000, (), temperature=0.0, banned_ids=(*STOPS_BY_ITSELF,))
"""Without the ids that end an answer it runs until it is aborted: the demo counts for 83 ids only,
which another one's turns may leave time for."""


@pytest.fixture
def engines_dir(demo_gguf: Path, tmp_path: Path) -> Path:
    """The demo as it is prepared, with an adapter in PEFT's form added to it."""
    directory = tmp_path / "demo" / VERSION
    directory.mkdir(parents=True)
    (directory / MODEL).hardlink_to(demo_gguf)
    write_card(directory, replace(card_of(directory), libraries=library_versions(), number=1))
    architecture = from_hf(json_object(SOURCE, "config.json", MAX_CONFIG_BYTES))
    source = write_adapter(tmp_path / "source", architecture, size=SIZE)
    made = adapter_changes.add(tmp_path, "demo", "style", source, KINDS).adapter
    assert (made.rank, made.modules) == (4, ("attn_output", "attn_q", "attn_v"))
    return tmp_path


def wish(adapter: str | None) -> GenerateOptions:
    return GenerateOptions(24, (), temperature=0.0, adapter=adapter)


async def check_the_engine(engine: Engine) -> None:
    """All in one slot, whose cache the other adapter has filled each time."""
    alone = {name: await generated(engine, PROMPT, wish(name)) for name in NAMES}
    assert alone[None].token_ids != alone["style"].token_ids
    assert [each.cached_tokens for each in alone.values()] == [0, 0]
    again = await generated(engine, PROMPT, wish("style"))
    assert again.cached_tokens == len(PROMPT) - 1
    assert again.token_ids == alone["style"].token_ids
    base = await generated(engine, PROMPT, wish(None))
    assert (base.cached_tokens, base.token_ids) == (0, alone[None].token_ids)
    endless, handle = begin(engine, PROMPT, UNENDING)
    await endless.some(1)
    told = await generated(engine, PROMPT, wish("style"))
    assert told.token_ids == alone["style"].token_ids
    assert not endless.finished, "the other one waited for its end"
    await endless.some(len(endless.token_ids) + len(base.token_ids))
    handle.abort()
    assert endless.token_ids[: len(base.token_ids)] == base.token_ids
    with pytest.raises(NotFound, match="no adapter 'nobody'"):
        engine.generate(PROMPT, wish("nobody"), endless)


async def check_prompts_beyond_the_slot(engine: Engine) -> None:
    """A state is restored for its adapter, although the other one had the slot last. The prompts
    end in a question that the model is sure about."""
    one, other = (
        [*encode(f"<|start|>developer<|message|>{words * 300}<|end|>"), *PROMPT]
        for words in (" 1", " 2")
    )
    first = await generated(engine, one, wish("style"))
    await generated(engine, other, wish("style"))
    plain = await generated(engine, one, wish(None))
    again = await generated(engine, one, wish("style"))
    assert (first.cached_tokens, plain.cached_tokens) == (0, 0)
    assert again.cached_tokens == len(one) - 1
    assert again.token_ids == first.token_ids


async def check_the_server(client: Client) -> None:
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


def test_an_adapter_answers_beside_the_model_itself_and_shares_nothing_with_it(
    engines_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the shelf to an answer. Turns are short."""
    # patched: turns last seconds, and no setting says so
    monkeypatch.setattr(keeper, "Patience", partial(Patience, turn_s=0.01))
    settings = Settings(engines_dir=engines_dir, store="memory://", slots=1, threads=1)

    async def story() -> None:
        made = loaded(engines.chosen_engine(settings), settings, engines.engine_of)
        app = create_app(settings, engine=made)
        async with living(app):
            await check_the_engine(made.engine)
            await check_prompts_beyond_the_slot(made.engine)
            await check_the_server(Client(app))

    asyncio.run(story())

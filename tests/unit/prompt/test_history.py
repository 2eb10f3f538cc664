"""What a run leaves behind: blocks that read back as their items, and prompts that extend."""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support.replay import (
    Json,
    Part,
    Stage,
    ids_of,
    load,
    names,
    normalised,
    plain,
    staged,
)
from tests.support.requests import accepted
from tests.support.scripted.engine import Script, ScriptedEngine
from tests.support.turns import turn
from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.features.explain.transcript import Mint
from trt_responses.features.guides.steering import GuidedSteering
from trt_responses.features.limits.admission import Admission
from trt_responses.features.references.carrier import Carrier
from trt_responses.features.seal.sealer import Sealer
from trt_responses.harmony.dialect import harmony
from trt_responses.harmony.write.render import Renderer
from trt_responses.health.lifecycle import Lifecycle
from trt_responses.prompt.output_blocks import output_blocks
from trt_responses.run.parts import Parts
from trt_responses.run.request import RunRequest
from trt_responses.run.runs import Runs
from trt_responses.stores.at_rest.blocks import pack, unpack
from trt_responses.stores.at_rest.spelled import Spelled
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID
from trt_responses.tokens.tokenise import Tokeniser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.harmony.read.reader import Tables
    from trt_responses.run.run import Run
    from trt_responses.store import Block
    from trt_responses.tokens.vocabulary import Vocabulary
    from trt_responses.wire.response import Response

ENDS = (CONTROL.end, CONTROL.call)


@pytest.fixture(scope="module")
def renderer(vocabulary: Vocabulary) -> Renderer:
    return Renderer(vocabulary, Tokeniser(vocabulary))


def left_behind(stage: Stage, renderer: Renderer) -> list[Block]:
    async def go() -> list[Block]:
        last = await stage.play()
        return await output_blocks(last, stage.reader, renderer)

    return asyncio.run(go())


def ids_in(block: Block) -> list[int]:
    return list(array("I", block.ids))


def said(item: Json) -> tuple[str, str, str]:
    """What an item says, without its id and status."""
    if item["type"] == "function_call":
        return item["type"], item["name"], item["arguments"]
    if item["type"] == "custom_tool_call":
        return item["type"], item["name"], item["input"]
    return item["type"], item.get("phase", ""), "".join(part["text"] for part in item["content"])


@pytest.mark.parametrize("name", names())
def test_every_item_is_stored_as_it_was_told_but_a_call_that_was_cut(
    name: str, vocabulary: Vocabulary, tables: Tables, renderer: Renderer
) -> None:
    stage = staged(load(name, vocabulary), tables)
    blocks = left_behind(stage, renderer)
    output = [
        item
        for item in plain(stage.log.response)["output"]
        if "call_id" not in item or item["status"] == "completed"
    ]
    assert [orjson.loads(block.item) for block in blocks] == output
    assert [block.call_id for block in blocks] == [item.get("call_id") for item in output]


@pytest.mark.parametrize("name", names())
def test_a_stored_block_is_whole_again_without_having_kept_its_text(
    name: str, vocabulary: Vocabulary, tables: Tables, renderer: Renderer
) -> None:
    """But what its ids do not say as it was told: bad UTF-8, a custom call, a call of nothing."""
    spell = Spelled(vocabulary, tables.pieces)
    for block in left_behind(staged(load(name, vocabulary), tables), renderer):
        kind, *_, text = said(orjson.loads(block.item))
        if "\ufffd" not in text and kind != "custom_tool_call" and text != "{}":
            assert spell(block.ids) == orjson.dumps(text)[1:-1]
        packed = pack(block, spell=spell)
        assert unpack(packed, spell, check=True) == block
        assert packed.digest == pack(block).digest


@pytest.mark.parametrize("name", names())
def test_a_stored_block_is_one_lawful_message_that_reads_back_as_its_item(
    name: str, vocabulary: Vocabulary, tables: Tables, renderer: Renderer
) -> None:
    transcript = load(name, vocabulary)
    opening = list(renderer.generation_prompt)
    for block in left_behind(staged(transcript, tables), renderer):
        ids = ids_in(block)
        assert ids[: len(opening)] == opening
        assert ids[-1] == (CONTROL.call if block.kind == "call" else CONTROL.end)
        body = ids[ids.index(CONTROL.message) + 1 : -1]
        assert all(token_id < FIRST_CONTROL_ID for token_id in body)
        again = Stage(tables, [Part((tuple(ids[len(opening) :]),))], transcript.tools)
        (item,) = plain(asyncio.run(again.play()))["output"]
        assert said(item) == said(orjson.loads(block.item))
        assert not again.machine.repairs


@pytest.mark.parametrize("name", names())
def test_what_was_written_by_the_rules_is_stored_id_by_id(
    name: str, vocabulary: Vocabulary, tables: Tables, renderer: Renderer
) -> None:
    stage = staged(load(name, vocabulary), tables)
    blocks, reader = left_behind(stage, renderer), stage.reader
    lawful = not any(span.repaired for span in reader.messages)
    if lawful and len(blocks) == len(reader.messages) > 0 and not stage.machine.repairs:
        stored = [token_id for block in blocks for token_id in ids_in(block)]
        assert stored == [*renderer.generation_prompt, *normalised(reader.kept, reader.messages)]


# --- the next prompt --------------------------------------------------------------------------


def ready() -> Lifecycle:
    lifecycle = Lifecycle()
    lifecycle.ready()
    return lifecycle


class Conversation:
    """Requests one after another, each answered with what a test wrote."""

    def __init__(
        self, vocabulary: Vocabulary, tables: Tables, renderer: Renderer, answers: Sequence[str]
    ) -> None:
        scripts = [Script((ids_of(answer, vocabulary),)) for answer in answers]
        self.engine = ScriptedEngine(scripts)
        self.dates = iter(("2026-01-01", "2026-01-02", "2026-01-03"))
        self.store = MemoryStore(Bounds(max_bytes=1_000_000, max_records=10))
        self.vocabulary = vocabulary
        self.runs = Runs(
            Parts(
                engine=self.engine,
                store=self.store,
                dialect=harmony(vocabulary),
                steering=GuidedSteering(harmony(vocabulary)),
                model="gpt-oss",
                identity="You are a test.",
                knowledge_cutoff="2024-06",
                admission=Admission(lambda: 4, clock_s=lambda: 0.0),
                carrier=Carrier(Sealer(lambda: [bytes(32)])),
                mint=Mint(),
                today=lambda: next(self.dates),
                clock_s=lambda: 1_700_000_000.0,
                clock_ns=lambda: 0,
            ),
            ready(),
        )

    async def start(self, owner: str = "ann", **body: object) -> Run:
        return await self.runs.start(RunRequest(accepted(body), owner, 0))

    async def ask(self, owner: str = "ann", **body: object) -> Response:
        return await self.runs.make(await self.start(owner, **body))

    def prompt(self, number: int) -> list[int]:
        return list(self.engine.requests[number].prompt_ids)


TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]
CALLS = (
    "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant"
    '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
)
ANSWERS = (
    "<|channel|>analysis<|message|>Now I know.<|end|><|start|>assistant"
    "<|channel|>final<|message|>Four.<|return|>"
)


def test_inside_a_tool_loop_the_next_prompt_begins_with_all_that_the_engine_has(
    vocabulary: Vocabulary, tables: Tables, renderer: Renderer
) -> None:
    async def go() -> None:
        talk = Conversation(vocabulary, tables, renderer, [CALLS, CALLS, ANSWERS])
        await talk.engine.start()
        last = await talk.ask(input="How much?", tools=TOOLS)
        for number in (1, 2):
            call = plain(last)["output"][-1]
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "4"}
            last = await talk.ask(input=[result], tools=TOOLS, previous_response_id=last.id)
            before = [*talk.prompt(number - 1), *ids_of(CALLS, vocabulary)]
            assert talk.prompt(number)[: len(before)] == before
        assert last.status == "completed"

    asyncio.run(go())


def test_behind_a_final_answer_its_reasoning_is_no_longer_rendered_and_the_date_stays(
    vocabulary: Vocabulary, tables: Tables, renderer: Renderer
) -> None:
    async def go() -> None:
        talk = Conversation(vocabulary, tables, renderer, [ANSWERS, ANSWERS])
        await talk.engine.start()
        first = await talk.ask(input="How much?")
        await talk.ask(input="Why?", previous_response_id=first.id)
        text = vocabulary.text(talk.prompt(1))
        asked = vocabulary.text(talk.prompt(0))
        answer = "<|channel|>final<|message|>Four.<|end|>"
        question = "<|start|>user<|message|>Why?<|end|><|start|>assistant"
        assert text == asked + answer + question
        assert "2026-01-01" in text

    asyncio.run(go())


def test_two_continuations_of_one_response_do_not_see_each_other(
    vocabulary: Vocabulary, tables: Tables, renderer: Renderer
) -> None:
    async def go() -> None:
        talk = Conversation(vocabulary, tables, renderer, [ANSWERS])
        await talk.engine.start()
        first = await talk.ask(input="One?")
        left = await talk.ask(input="Left?", previous_response_id=first.id)
        right = await talk.ask(input="Right?", previous_response_id=first.id)
        assert "Left?" not in vocabulary.text(talk.prompt(2))
        await talk.ask(input="On?", previous_response_id=left.id)
        await talk.ask(input="On?", previous_response_id=right.id)
        assert "Right?" not in vocabulary.text(talk.prompt(3))
        assert "Left?" not in vocabulary.text(talk.prompt(4))

    asyncio.run(go())


@pytest.mark.parametrize(("owner", "store"), [("ann", False), ("bob", True)])
def test_a_response_that_is_not_there_for_this_owner_cannot_be_continued(
    vocabulary: Vocabulary, tables: Tables, renderer: Renderer, owner: str, store: bool
) -> None:
    async def go() -> None:
        talk = Conversation(vocabulary, tables, renderer, [ANSWERS])
        await talk.engine.start()
        last = await talk.ask(owner, input="One?", store=store)
        with pytest.raises(InvalidRequest) as raised:
            await talk.ask(input="On?", previous_response_id=last.id)
        assert raised.value.param == "previous_response_id"
        assert raised.value.code == "previous_response_not_found"

    asyncio.run(go())


def test_a_cut_answer_can_be_continued_and_a_failed_one_cannot(
    vocabulary: Vocabulary, tables: Tables, renderer: Renderer
) -> None:
    async def go() -> None:
        talk = Conversation(vocabulary, tables, renderer, [CALLS[:-8], ANSWERS])
        await talk.engine.start()
        cut = await talk.ask(input="How much?", tools=TOOLS, max_output_tokens=12)
        assert cut.status == "incomplete"
        await talk.ask(input="Go on.", tools=TOOLS, previous_response_id=cut.id)
        text = vocabulary.text(talk.prompt(1))
        assert "Look it up.<|end|><|start|>user<|message|>Go on." in text
        run = await talk.start(input="Fail.")
        making = asyncio.create_task(talk.runs.make(run))
        await turn()
        run.fail(ApiError("The server is shutting down."))
        failed = await making
        assert failed.status == "failed"
        with pytest.raises(InvalidRequest, match="cannot be continued"):
            await talk.ask(input="On?", previous_response_id=failed.id)

    asyncio.run(go())

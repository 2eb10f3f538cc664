"""How likely each token was, for those who asked; and how many there were, for everybody."""

from __future__ import annotations

import asyncio
import math
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from openai_harmony import Conversation, RenderConversationConfig, Role

from tests.support import lawful
from tests.support.asgi import asked
from tests.support.replies import check_streamed, without_ids
from tests.support.requests import accepted
from tests.support.scripted.engine import Scored, Script
from tests.support.sdk_judge import accumulated
from tests.support.served import CALL, THOUGHT, WEATHER, ids, script, served, vocabulary
from trt_responses.engine import Logprob
from trt_responses.features.logprobs.install import LEAST, ScoredReader
from trt_responses.harmony.read.reader import Reader
from trt_responses.run.request import RunRequest
from trt_responses.store import Record
from trt_responses.stores.limits import Bounds
from trt_responses.stores.memory.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

INCLUDE = ["message.output_text.logprobs"]
ANSWER_TEXT = "Grüezi 🙂 <b>𒀀</b> é"
WRITTEN = (
    "<|channel|>analysis<|message|>They greet.<|end|><|start|>assistant"
    f"<|channel|>final<|message|>{ANSWER_TEXT}<|return|>"
)


def scored(text: str, chunk: int) -> Script:
    """Each id with its own logprob, and the three ids before it in the vocabulary beside it."""
    entries = [
        Logprob(i, -n / 7, ((i, -n / 7), (i - 1, -9.5), (i - 2, -math.inf)))
        for n, i in enumerate(ids(text))
    ]
    parts = range(0, len(entries), chunk)
    return Script(tuple(Scored(tuple(entries[n : n + chunk])) for n in parts))


def check_entries(entries: Sequence[Any], tokens: Sequence[int], first: int, top: int) -> None:
    """One for each id, in order, and nothing else."""
    spelled = vocabulary().token_bytes
    assert [bytes(entry["bytes"]) for entry in entries] == [spelled[i] for i in tokens]
    for n, (entry, i) in enumerate(zip(entries, tokens, strict=True), first):
        assert entry["logprob"] == pytest.approx(-n / 7)
        assert entry["token"] == spelled[i].decode("utf-8", "replace")
        beside = [(bytes(other["bytes"]), other["logprob"]) for other in entry["top_logprobs"]]
        wanted = [
            (spelled[i], pytest.approx(-n / 7)),
            (spelled[i - 1], -9.5),
            (spelled[i - 2], LEAST),
        ]
        assert beside == wanted[:top]


@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_each_token_of_the_text_is_told_once_and_a_delta_is_whole_characters(chunk: int) -> None:
    text_ids = ids(ANSWER_TEXT)
    first = len(ids(WRITTEN)) - len(text_ids) - 1

    async def story() -> None:
        async with served(scored(WRITTEN, chunk)) as s:
            call = await s.client.create(stream=True, include=INCLUDE, top_logprobs=3)
            last = check_streamed(call)
            lawful.check(call.events, last)
            deltas = [e for e in call.events if e["type"] == "response.output_text.delta"]
            assert "".join(e["delta"] for e in deltas) == ANSWER_TEXT
            assert not any("\ufffd" in e["delta"] for e in deltas)
            check_entries([p for e in deltas for p in e["logprobs"]], text_ids, first, 3)
            for event in deltas:
                raw = b"".join(bytes(entry["bytes"]) for entry in event["logprobs"])
                assert raw.decode() == event["delta"]
            (done,) = [e for e in call.events if e["type"] == "response.output_text.done"]
            check_entries(done["logprobs"], text_ids, first, 3)
            reasoning, message = last["output"]
            check_entries(message["content"][0]["logprobs"], text_ids, first, 3)
            assert "logprobs" not in reasoning["content"][0]
            assert last["top_logprobs"] == 3
            plain = (await s.client.create(include=INCLUDE, top_logprobs=3)).json()
            assert without_ids(plain) == without_ids(last)
            kept = (await s.client.get(f"/v1/responses/{last['id']}")).json()
            assert kept == last
            assert accumulated(call.events)[1]["content"][0]["text"] == ANSWER_TEXT

    asyncio.run(story())


def test_without_top_logprobs_only_the_chosen_token_is_told() -> None:
    async def story() -> None:
        async with served(scored(WRITTEN, 1)) as s:
            last = (await s.client.create(include=INCLUDE)).json()
            entries = last["output"][1]["content"][0]["logprobs"]
            assert len(entries) == len(ids(ANSWER_TEXT))
            assert all(entry["top_logprobs"] == [] for entry in entries)
            assert s.last.options.logprobs == 0

    asyncio.run(story())


def test_who_does_not_ask_gets_none_and_runs_as_ever() -> None:
    async def story() -> None:
        async with served(scored(WRITTEN, 1)) as s:
            asks: list[dict[str, Any]] = [{}, {"include": []}, {"top_logprobs": 5}]
            for fields in asks:
                run = await s.runs.start(RunRequest(accepted(asked(**fields)), "", 0))
                assert type(run.reader) is Reader
                last = await s.runs.make(run)
                assert last.output[1].content[0].logprobs == ()
                assert s.last.options.logprobs is None
            run = await s.runs.start(RunRequest(accepted(asked(include=INCLUDE)), "", 0))
            assert type(run.reader) is ScoredReader
            await s.runs.make(run)
            call = await s.client.create(top_logprobs=5)
            assert call.headers["x-trt-ignored"] == "top_logprobs"

    asyncio.run(story())


def test_arguments_have_none_and_a_call_is_told_as_ever() -> None:
    async def story() -> None:
        async with served(scored(CALL, 3)) as s:
            call = await s.client.create(stream=True, include=INCLUDE, tools=[WEATHER])
            last = check_streamed(call)
            lawful.check(call.events, last)
            assert last["output"][1]["arguments"] == '{"city": "Bern"}'
            assert b'logprob":' not in call.body.replace(b'"top_logprobs":0', b"")

    asyncio.run(story())


def test_a_character_that_is_cut_is_told_with_its_tokens() -> None:
    wave = "🙂𒀀"
    tokens = ids("<|channel|>final<|message|>x" + wave)
    cut = tokens[:-1]

    async def story() -> None:
        script_ = Script(tuple(Scored((Logprob(i, -1.0),)) for i in cut), "length")
        async with served(script_) as s:
            call = await s.client.create(stream=True, include=INCLUDE)
            last = check_streamed(call)
            part = last["output"][0]["content"][0]
            told = b"".join(bytes(entry["bytes"]) for entry in part["logprobs"])
            assert told.decode("utf-8", "replace") == part["text"]
            assert part["text"].endswith("\ufffd")

    asyncio.run(story())


def test_more_than_the_engine_tells_is_refused_before_any_token() -> None:
    async def story() -> None:
        async with served(scored(WRITTEN, 1), max_logprobs=5) as s:
            call = await s.client.create(include=INCLUDE, top_logprobs=6)
            assert (call.status, call.error["param"]) == (400, "top_logprobs")
            assert (await s.client.create(include=INCLUDE, top_logprobs=5)).status == 200
        async with served(scored(WRITTEN, 1), max_logprobs=0) as s:
            call = await s.client.create(include=INCLUDE)
            assert (call.status, call.error["param"]) == (400, "include")
            assert (await s.client.create()).status == 200

    asyncio.run(story())


# --- usage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [THOUGHT, CALL, WRITTEN], ids=["thought", "call", "scored"])
@pytest.mark.parametrize("mode", [{}, {"stream": True}, {"include": INCLUDE, "stream": True}])
def test_usage_is_what_openai_harmony_counts_in_the_stored_ids(
    text: str, mode: dict[str, Any]
) -> None:
    async def story() -> None:
        store = MemoryStore(Bounds())
        async with served(script(text), store=store) as s:
            call = await s.client.create(tools=[WEATHER], **mode)
            last = check_streamed(call) if mode else call.json()
            record = await store.get(last["id"], "")
            assert isinstance(record, Record)
            own = [array("I", block.ids) for block in record.blocks[record.input_count :]]
            stored = [token_id for ids_ in own for token_id in ids_]
            encoding, usage = vocabulary().encoding, last["usage"]
            opening = list(ids("<|start|>assistant"))
            messages = encoding.parse_messages_from_completion_tokens(
                stored[len(opening) :], Role.ASSISTANT
            )
            conversation = Conversation.from_messages(messages)
            rendered = encoding.render_conversation(
                conversation, RenderConversationConfig(auto_drop_analysis=False)
            )
            assert usage["output_tokens"] == len(rendered) - len(opening)
            assert usage["input_tokens"] == len(s.prompt())
            assert usage["total_tokens"] == len(s.prompt()) + len(rendered) - len(opening)
            thoughts = sum(
                len(encoding.encode(part.text, allowed_special=()))
                for message in messages
                if message.channel == "analysis"
                for part in message.content
            )
            assert usage["output_tokens_details"]["reasoning_tokens"] == thoughts

    asyncio.run(story())

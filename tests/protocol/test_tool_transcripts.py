"""The truths of a log hold where a tool of the server's answers within it: every transcript of
`tests/transcripts/tools`, over the whole app.

Budget: 15 s on one core.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.support import tool_transcripts as t
from tests.support.replies import check_streamed, without_ids
from tests.support.sampled import sampled
from tests.support.sdk_judge import accumulated
from tests.support.story import story
from trt_responses.engine import CONTINUATION_PRIORITY

if TYPE_CHECKING:
    from tests.support.asgi import Json

NAMES = t.names()
every_transcript = pytest.mark.parametrize("name", NAMES)
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}


def test_there_are_transcripts() -> None:
    assert len(NAMES) >= 14


@every_transcript
@story
async def test_a_transcript_gives_the_log_that_it_says_whatever_the_steps(name: str) -> None:
    transcript = t.load(name)
    expected = {key: transcript.source[key] for key in ("log", "response")}
    sizes = (1, 3, 1000)
    async with t.playing(transcript, *[transcript.turns] * len(sizes), sizes=sizes) as app:
        for _ in sizes:
            call = await app.client.create(**transcript.asked, stream=True)
            last = check_streamed(call)
            assert t.told(call) == expected
            for item, gathered in zip(last["output"], accumulated(call.events), strict=True):
                for key in ("type", "arguments", "name"):
                    assert item.get(key) == gathered.get(key)


@every_transcript
@story
async def test_every_reader_gets_the_same_snapshot(name: str) -> None:
    transcript = t.load(name)
    told = []
    async with t.playing(transcript, *[transcript.turns] * 3) as app:
        streamed = await app.client.create(**transcript.asked, stream=True)
        told.append(streamed.events[-1]["response"])
        plain = await app.client.create(**transcript.asked)
        later = await app.client.create(**transcript.asked, background=True)
        while later.json()["status"] in ("queued", "in_progress"):
            await app.clock.step()
            later = await app.client.get(f"/v1/responses/{later.json()['id']}")
        told.append(later.json())
        if plain.status == 200:
            told.append(plain.json())
        else:
            assert (plain.status, told[0]["status"]) == (500, "failed")
    assert [one["output"] for one in map(without_ids, told)] == (
        [without_ids(told[0]["output"])] * len(told)
    )
    assert len({(one["status"], one["usage"]["output_tokens"]) for one in told}) == 1


@sampled("name", NAMES, every=3)  # 2 s: hundreds of runs
@story
async def test_cut_anywhere_it_has_one_end_and_nothing_stays_open(name: str) -> None:
    """The first turn and the last, at each fourth place; what stands before is as it was."""
    transcript = t.load(name)
    turns = transcript.turns
    cuts = [
        [*turns[:number], turns[number].cut(length)]
        for number in {0, len(turns) - 1}
        for length in range(1, len(turns[number].ids), 4)
    ]
    async with t.playing(transcript, *cuts) as app:
        for _ in cuts:
            before = len(app.engine.requests)
            call = await app.client.create(**transcript.asked, stream=True)
            last = check_streamed(call)
            kinds = [event["type"] for event in call.events]
            assert [kind for kind in kinds if kind in TERMINAL] == ["response.incomplete"]
            assert kinds[-1] == "response.incomplete"
            done = [e["item"] for e in call.events if e["type"] == "response.output_item.done"]
            assert done == last["output"]
            assert {item["status"] for item in done} <= {"completed", "incomplete", "failed"}
            assert len(app.engine.requests) - before <= len(turns)


@every_transcript
@story
async def test_each_prompt_extends_the_ids_that_were_kept(name: str) -> None:
    transcript = t.load(name)
    call, app = await t.played(transcript)
    requests = app.engine.requests
    for (earlier, later), turn in zip(pairwise(requests), transcript.turns, strict=False):
        kept = [*earlier.prompt_ids, *turn.ids]
        assert list(later.prompt_ids[: len(kept)]) == kept
        assert later.options.priority == CONTINUATION_PRIORITY  # ahead of new requests
    usage: Json = call.events[-1]["response"]["usage"]
    read, wrote = len(requests[-1].prompt_ids), len(transcript.turns[-1].ids)
    # What is forced at the beginning of a turn is read in its prompt, and is the model's output.
    assert usage["total_tokens"] == read + wrote

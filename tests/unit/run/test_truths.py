"""The seven truths of the log, over every transcript. Each test says which truth it holds."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, get_args

import openai_harmony
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response as OpenAIResponse

from tests.support import lawful, tokens
from tests.support.folding import apply
from tests.support.golden import told
from tests.support.replay import (
    PROMPT,
    Ending,
    Part,
    Stage,
    followed,
    load,
    load_source,
    names,
    parsed,
    plain,
    staged,
)
from tests.support.sampled import sampled
from tests.support.sdk_judge import accumulated, refused
from trt_responses.features.explain.transcript import compact
from trt_responses.harmony.dialect import harmony
from trt_responses.harmony.read.reader import Reader
from trt_responses.log.log import Cursor
from trt_responses.tokens.control import CONTROL, VOCABULARY_SIZE
from trt_responses.wire import events as e
from trt_responses.wire.response import Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.replay import Json, Transcript
    from trt_responses.harmony.read.reader import Tables
    from trt_responses.language.reader import Span
    from trt_responses.tokens.vocabulary import Vocabulary
from tests.support.replay import AUTHOR, normalised
from tests.support.turns import turn

NAMES = names()
every_transcript = pytest.mark.parametrize("name", NAMES)

TERMINALS = (e.Completed, e.Incomplete, e.Failed)
SET_AT_THE_END = ("status", "completed_at", "error", "incomplete_details", "usage")
"""What only the terminal event can know: the fold of the rest has no value for it."""


@pytest.fixture
def transcript(name: str, vocabulary: Vocabulary) -> Transcript:
    return load(name, vocabulary)


def played(transcript: Transcript, tables: Tables) -> Stage:
    stage = staged(transcript, tables)
    asyncio.run(stage.play())
    return stage


def snapshot(stage: Stage) -> Json:
    response: Json = plain(stage.log.response)
    return response


# --- the transcripts themselves ---------------------------------------------------------------


def test_there_are_transcripts() -> None:
    assert len(NAMES) >= 50


@every_transcript
def test_a_transcript_gives_the_log_that_it_says(transcript: Transcript, tables: Tables) -> None:
    expected = {key: transcript.source[key] for key in ("log", "response", "repairs")}
    assert told(played(transcript, tables)) == expected


@every_transcript
def test_every_event_is_what_the_sdk_and_the_specification_ask(
    transcript: Transcript, tables: Tables
) -> None:
    for event in played(transcript, tables).events():
        assert refused(event) is None


def lawful_twin(law: Sequence[tuple[str | None, str | None, str]]) -> list[int]:
    """The ids with which openai-harmony itself writes the messages of a law."""
    encoding = tokens.vocabulary().encoding
    ids = list[int]()
    for channel, recipient, text in law:
        message = openai_harmony.Message.from_role_and_content("assistant", text)
        message.channel, message.recipient = channel, recipient
        if recipient is not None:
            message.content_type = "<|constrain|>json"
        ids += encoding.render(message)
    parsed = encoding.parse_messages_from_completion_tokens([*ids[:-1], CONTROL.return_])
    assert [(m.channel, m.recipient, m.content[0].text) for m in parsed] == [*map(tuple, law)]
    ended = CONTROL.call if law[-1][1] is not None else CONTROL.return_
    return [*ids[len(encoding.encode(AUTHOR, allowed_special="all")) : -1], ended]


@pytest.mark.parametrize("name", [name for name in NAMES if "law" in load_source(name)])
def test_a_malformed_turn_gives_the_items_of_its_lawful_twin(
    transcript: Transcript, tables: Tables
) -> None:
    """`law` says what the model wrote, judged by openai-harmony; the SDK says what a user reads."""
    law = transcript.source["law"]
    twin = transcript.with_last(Part((tuple(lawful_twin(law)),)))
    broken, lawful_one = (
        OpenAIResponse.model_validate(snapshot(played(one, tables))) for one in (transcript, twin)
    )
    read = [text for channel, to, text in law if to is None and channel != "analysis"]
    assert broken.output_text == "".join(read)
    assert items_of(broken) == items_of(lawful_one)


def items_of(response: OpenAIResponse) -> list[Json]:
    return [item.model_dump(exclude={"id", "call_id"}) for item in response.output]


def test_21_shapes_of_malformed_turns_have_a_law() -> None:
    assert sum("law" in load_source(name) for name in NAMES) >= 21


# --- 1: the fold of all events but the last is the response inside the last --------------------


@every_transcript
def test_1_the_fold_of_the_events_is_the_last_snapshot(
    transcript: Transcript, tables: Tables
) -> None:
    stage = played(transcript, tables)
    events = [event for _, event in stage.log.events()]
    last = stage.log.response
    folded = Response("", 0, "")
    for event in events[: -1 if isinstance(events[-1], TERMINALS) else None]:
        folded = apply(folded, event)
    assert folded.status == "in_progress"
    end = {name: getattr(last, name) for name in SET_AT_THE_END}
    assert replace(folded, **end) == last
    if isinstance(events[-1], TERMINALS):
        assert events[-1].response == last


@every_transcript
def test_1_the_sdks_accumulator_gathers_the_same_texts(
    transcript: Transcript, tables: Tables
) -> None:
    stage = played(transcript, tables)
    gathered = accumulated(stage.events())
    output = snapshot(stage)["output"]
    assert [item["id"] for item in gathered] == [item["id"] for item in output]
    for item, expected in zip(gathered, output, strict=True):
        if item["type"] == "message":
            assert [part["text"] for part in item["content"]] == [
                part["text"] for part in expected["content"]
            ]
        elif item["type"] == "function_call":
            assert item["arguments"] == expected["arguments"]


# --- 2: one terminal event, and it is last ----------------------------------------------------


@every_transcript
def test_2_the_log_is_lawful_and_ends_once(transcript: Transcript, tables: Tables) -> None:
    stage = played(transcript, tables)
    assert stage.log.closed
    lawful.check(stage.events(), snapshot(stage))


# --- 3: cutting the tokens anywhere, with any finish reason ------------------------------------

STATUS: dict[Ending, str] = {
    "stop": "completed",
    "length": "incomplete",
    "error": "failed",
    "abort": "cancelled",
}


def cuts(transcript: Transcript) -> Iterator[tuple[Part, ...]]:
    for number, part in enumerate(transcript.parts):
        ids = part.ids
        for at in range(len(ids) + 1):
            steps = (ids[:at],) if at else ()
            for finish in get_args(Ending):
                yield (*transcript.parts[:number], Part(steps, finish, part.forced))


def ends_of_itself(parts: Sequence[Part], tables: Tables) -> bool:
    reader = Reader(tables)
    for part in parts:
        reader.feed((*part.forced, *part.ids))
    return reader.ended


# 6 s on one core for all transcripts: about 4,500 runs.
@every_transcript
def test_3_a_cut_anywhere_with_any_finish_gives_a_lawful_log(
    transcript: Transcript, tables: Tables
) -> None:
    async def run_all() -> None:
        for parts in cuts(transcript):
            stage = Stage(tables, parts, transcript.tools)
            await stage.play()
            last = snapshot(stage)
            lawful.check(stage.events(), last)
            ended = ends_of_itself(parts, tables)
            assert last["status"] == ("completed" if ended else STATUS[parts[-1].finish])

    asyncio.run(run_all())


# --- 4: other chunk sizes give the same log ----------------------------------------------------


def rechunked(transcript: Transcript, size: int) -> Transcript:
    return replace(transcript, parts=tuple(part.chunked(size) for part in transcript.parts))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@every_transcript
def test_4_the_log_does_not_depend_on_the_size_of_chunks(
    transcript: Transcript, tables: Tables, size: int
) -> None:
    stage = played(rechunked(transcript, size), tables)
    assert compact(stage.events()) == transcript.source["log"]
    assert told(stage)["response"] == transcript.source["response"]


# 3 s on one core.
@settings(max_examples=300)
@given(data=st.data())
def test_4_nor_on_where_the_chunks_part(
    data: st.DataObject, vocabulary: Vocabulary, tables: Tables
) -> None:
    transcript = load(data.draw(st.sampled_from(NAMES)), vocabulary)
    parts = []
    for part in transcript.parts:
        ends = data.draw(st.sets(st.integers(0, len(part.ids)), max_size=12))
        edges = [0, *sorted(ends), len(part.ids)]
        steps = tuple(part.ids[a:b] for a, b in pairwise(edges))
        parts.append(replace(part, steps=steps))
    stage = played(replace(transcript, parts=tuple(parts)), tables)
    assert told(stage) == {key: transcript.source[key] for key in ("log", "response", "repairs")}


# --- 5: stream, plain and background give the same snapshot ------------------------------------

MAY_DIFFER = {"id", "created_at", "completed_at", "background"}


def common(last: Json) -> Json:
    return {key: value for key, value in last.items() if key not in MAY_DIFFER}


async def streamed(stage: Stage) -> bytes:
    """What a connection would have written while the run was made."""
    reading = asyncio.create_task(followed(stage.log))
    await stage.play()
    return b"".join(await reading)


@every_transcript
def test_5_stream_plain_and_background_tell_the_same(
    transcript: Transcript, tables: Tables
) -> None:
    stream = staged(transcript, tables)
    events = parsed(asyncio.run(streamed(stream)))
    plainly: Json = plain(asyncio.run(staged(transcript, tables).play()))
    asked = Response("resp_bg", 1_800_000_000, "gpt-oss", background=True)
    background = Stage(tables, transcript.parts, transcript.tools, response=asked)
    asyncio.run(background.play())
    assert common(snapshot(background)) == common(plainly) == common(snapshot(stream))
    assert compact(background.events()) == compact(events) == transcript.source["log"]
    if plainly["status"] != "cancelled":
        assert common(events[-1]["response"]) == common(plainly)


@every_transcript
def test_5_a_reader_may_begin_after_any_event_at_any_time(
    transcript: Transcript, tables: Tables
) -> None:
    """Cursors that were made before the first event, half-way, and after the last."""
    stage = staged(rechunked(transcript, 1), tables)
    length = len(played(rechunked(transcript, 1), tables).events())

    async def read() -> tuple[list[bytes], list[bytes]]:
        early = [Cursor(stage.log, after=n) for n in range(-1, length + 2)]
        taken = [b"" for _ in early]
        making = asyncio.create_task(stage.play())
        middle: list[Cursor] = []
        while not making.done():
            await turn()
            if not middle and stage.log.next_number >= length // 2:
                middle = [Cursor(stage.log, after=n) for n in range(-1, length + 2)]
            taken = [frames + cursor.take() for frames, cursor in zip(taken, early, strict=True)]
        last = [frames + cursor.take() for frames, cursor in zip(taken, early, strict=True)]
        return last, [cursor.take() for cursor in middle]

    early, middle = asyncio.run(read())
    whole = stage.events()
    for number, frames in enumerate(early):
        assert parsed(frames) == whole[number:]
        assert middle[number] == frames
        assert stage.frames(after=number - 1) == frames


# --- 6: corrupting any one token --------------------------------------------------------------

PARTIAL, INVALID, WORD = 4103, 187, 148_838
"""The first id of 🦙, the byte 0xFF, and an ordinary word with a space in front."""

STRUCTURE = re.compile(
    r"<\|channel\|>\s*[\w-]+|<\|constrain\|>(?!\s*to=)\s*[\w.+/-]+|to=\s*[A-Za-z0-9_.:/-]*"
    r"|(?:functions|browser|container)\.[\w.-]+|(?:analysis|commentary|final)[?!:;,.]*"
    r"|(?:<\|start\|>)?assistant|<\|start\|>a[sistan]*|python|json|code|text|markdown|plain"
)
SPELLED = re.compile(r"<\|[a-z]+(?:_\d+)?\|>|\s|\ufffd")
"""What may be a header's and no text: names where they stand, known words, ids, white space."""


def corruptions(transcript: Transcript) -> Iterator[Transcript]:
    last = transcript.parts[-1]
    ids = last.ids
    for at in range(len(ids)):
        for wrong in (*(c for c in CONTROL if c > 200_000), PARTIAL, INVALID, WORD, 201_088, -7):
            if wrong != ids[at]:
                steps = (ids[:at], (wrong,), ids[at + 1 :])
                yield transcript.with_last(replace(last, steps=tuple(s for s in steps if s)))


def told_of(wrote: str, said: str, names: Sequence[str] = ()) -> bool:
    """Whether `said` is what was written, less nothing but structure."""
    said = said.replace("\ufffd", "")
    named = re.compile("|".join(names) or SPELLED.pattern)
    open_ends, seen = [(0, 0)], set[tuple[int, int]]()
    while open_ends:
        here = open_ends.pop()
        at, place = here
        if here == (len(wrote), len(said)):
            return True
        if here in seen or at == len(wrote):
            continue
        seen.add(here)
        skips = [found.end() for p in (STRUCTURE, SPELLED, named) if (found := p.match(wrote, at))]
        open_ends += [(end, place) for end in skips]
        if said[place : place + 1] == wrote[at]:
            open_ends.append((at + 1, place + 1))
    return False


def names_in(span: Span) -> list[str]:
    """Whole names; the limit of a header's length may fall inside what would be a channel's."""
    names = (span.channel, span.recipient, span.content_type)
    return [rf"{re.escape(name)}(?!\w)" for name in names if name] + [r"<\|channel\|>\s*[a-z]+"]


def texts_of(item: Json) -> list[str]:
    """What the model may have written for it: an empty call is told as `{}`."""
    if item["type"] != "function_call":
        return ["".join(part["text"] for part in item["content"])]
    return [item["arguments"], *[""][: item["arguments"] == "{}"]]


def check_wrapped(item: Json, body: str) -> None:
    """A custom call says what JSON reads; what is no such JSON is held elsewhere."""
    try:
        told = json.loads(body, strict=False)
    except ValueError:
        return
    if isinstance(told, dict) and told.keys() == {"input"} and isinstance(told["input"], str):
        said = told["input"].encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        assert item["input"].replace("\ufffd", "") == said.replace("\ufffd", "")


def check_text(stage: Stage, vocabulary: Vocabulary) -> None:
    """Each message's ids say what its item says; between messages there is structure alone."""
    kept, output = stage.reader.kept, snapshot(stage)["output"]
    at = 0
    for item, span in zip(output, stage.reader.messages, strict=True):
        body = vocabulary.text(kept[span.body_start : span.body_start + span.content_tokens])
        if item["type"] == "custom_tool_call":
            if not span.repaired:
                check_wrapped(item, body)
        elif not span.repaired:
            assert body.replace("\ufffd", "") in [t.replace("\ufffd", "") for t in texts_of(item)]
        else:
            wrote = vocabulary.text(kept[span.start : span.end])
            assert any(told_of(wrote, said, names_in(span)) for said in texts_of(item))
        assert told_of(vocabulary.text(kept[at : span.start]), "")
        at = span.end
    if "cut_header" not in stage.machine.repairs:
        assert told_of(vocabulary.text(kept[at:]), "")


@sampled("name", NAMES)  # 12 s: about 11,000 runs
def test_6_corrupting_any_token_gives_a_lawful_log_with_the_models_text(
    transcript: Transcript, vocabulary: Vocabulary, tables: Tables
) -> None:
    async def run_all() -> None:
        for corrupted in corruptions(transcript):
            stage = staged(corrupted, tables)
            await stage.play()
            lawful.check(stage.events(), snapshot(stage))
            check_text(stage, vocabulary)

    asyncio.run(run_all())


# --- 7: the kept ids of all segments are the stored ids ----------------------------------------


@every_transcript
def test_7_the_kept_ids_of_all_segments_are_the_stored_ids(
    transcript: Transcript, vocabulary: Vocabulary, tables: Tables
) -> None:
    stage = played(transcript, tables)
    reader = stage.reader
    wrote = [i for part in transcript.parts for i in (*part.forced, *part.ids)]
    assert reader.kept == [i for i in wrote if 0 <= i < VOCABULARY_SIZE][: len(reader.kept)]
    opening = vocabulary.encoding.encode(AUTHOR, allowed_special="all")
    own_ids = harmony(vocabulary).renderer.own_ids
    stored = [i for span in reader.messages for i in own_ids(reader.kept, span)]
    if not stage.machine.repairs and reader.messages:
        assert stored == [*opening, *normalised(reader.kept, reader.messages)]
        assert reader.messages[-1].end == len(reader.kept)


@every_transcript
def test_7_every_segment_continues_the_kept_ids(transcript: Transcript, tables: Tables) -> None:
    stage = played(transcript, tables)
    prompt = list(PROMPT)
    for part, request in zip(transcript.parts, stage.scripted.requests, strict=True):
        prompt += part.forced
        assert list(request.prompt_ids) == prompt
        prompt += part.ids

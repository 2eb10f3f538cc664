"""The seven truths of the log over transcripts of models that do not speak Harmony."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import pytest

from tests.support import lawful
from tests.support.folding import apply
from tests.support.golden import told
from tests.support.replay import Ending, Part, followed, parsed, plain
from tests.support.sampled import sampled
from tests.support.sdk_judge import accumulated, refused
from tests.support.template_families import checkpoint, tables
from tests.support.template_transcripts import load, names, staged
from tests.support.template_turns import check_spans, lost_words, merged, reader_of
from trt_responses.features.explain.transcript import compact
from trt_responses.wire import events as e
from trt_responses.wire.response import Response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.replay import Json, Stage, Transcript
    from trt_responses.dialects.templates.read.reader import TemplateReader

every_transcript = pytest.mark.parametrize("name", names())

TERMINALS = (e.Completed, e.Incomplete, e.Failed)
SET_AT_THE_END = ("status", "completed_at", "error", "incomplete_details", "usage")
STATUS = {"stop": "completed", "length": "incomplete", "error": "failed", "abort": "cancelled"}


def played(stage: Stage) -> Stage:
    asyncio.run(stage.play())
    return stage


def snapshot(stage: Stage) -> Json:
    response: Json = plain(stage.log.response)
    return response


def test_each_family_has_transcripts() -> None:
    families = {checkpoint(load(name).source["template"]).family.name for name in names()}
    assert families == {"qwen3", "qwen3-xml", "glm", "deepseek-v3.1"}


@every_transcript
def test_a_transcript_gives_the_log_that_it_says(name: str) -> None:
    transcript = load(name)
    stage = played(staged(transcript))
    assert told(stage) == {key: transcript.source[key] for key in ("log", "response", "repairs")}
    for event in stage.events():
        assert refused(event) is None


@every_transcript
def test_1_the_fold_of_the_events_is_the_last_snapshot(name: str) -> None:
    stage = played(staged(load(name)))
    events, last = [event for _, event in stage.log.events()], stage.log.response
    folded = Response("", 0, "")
    for event in events[: -1 if isinstance(events[-1], TERMINALS) else None]:
        folded = apply(folded, event)
    assert replace(folded, **{key: getattr(last, key) for key in SET_AT_THE_END}) == last
    output = snapshot(stage)["output"]
    gathered: Any = accumulated(stage.events())
    assert [item["id"] for item in gathered] == [item["id"] for item in output]
    for item, expected in zip(gathered, output, strict=True):
        if item["type"] == "function_call":
            assert item["arguments"] == expected["arguments"]


@every_transcript
def test_2_the_log_is_lawful_and_ends_once(name: str) -> None:
    stage = played(staged(load(name)))
    assert stage.log.closed
    lawful.check(stage.events(), snapshot(stage))


def cuts(transcript: Transcript) -> Iterator[tuple[Part, ...]]:
    (part,) = transcript.parts
    for at in range(len(part.ids) + 1):
        for finish in get_args(Ending):
            yield (Part((part.ids[:at],) if at else (), finish),)


@every_transcript
def test_3_a_cut_anywhere_with_any_finish_gives_a_lawful_log(name: str) -> None:
    transcript = load(name)

    async def run_all() -> None:
        for parts in cuts(transcript):
            stage = staged(transcript, parts)
            await stage.play()
            lawful.check(stage.events(), snapshot(stage))
            source = transcript.source
            reader = reader_of(source["template"], source["begins"])
            reader.feed(parts[0].ids)
            ended = "completed" if reader.ended else STATUS[parts[0].finish]
            assert snapshot(stage)["status"] == ended

    asyncio.run(run_all())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@every_transcript
def test_4_the_log_does_not_depend_on_the_size_of_chunks(name: str, size: int) -> None:
    transcript = load(name)
    stage = played(staged(transcript, [part.chunked(size) for part in transcript.parts]))
    assert compact(stage.events()) == transcript.source["log"]
    assert told(stage)["response"] == transcript.source["response"]


def common(last: Json) -> Json:
    may_differ = {"id", "created_at", "completed_at", "background"}
    return {key: value for key, value in last.items() if key not in may_differ}


@every_transcript
def test_5_stream_plain_and_background_tell_the_same(name: str) -> None:
    transcript = load(name)
    stream = staged(transcript)

    async def streamed() -> bytes:
        reading = asyncio.create_task(followed(stream.log))
        await stream.play()
        return b"".join(await reading)

    events = parsed(asyncio.run(streamed()))
    plainly: Json = plain(asyncio.run(staged(transcript).play()))
    asked = Response("resp_bg", 1_800_000_000, "gpt-oss", background=True)
    background = played(staged(transcript, response=asked))
    assert common(snapshot(background)) == common(plainly) == common(snapshot(stream))
    assert compact(background.events()) == compact(events) == transcript.source["log"]


def corruptions(transcript: Transcript) -> Iterator[list[int]]:
    """One id exchanged, removed or doubled, at every place."""
    known = tables(transcript.source["template"])
    dice, ids = random.Random(transcript.name), [*transcript.parts[-1].ids]
    invalid = next(n for n, raw in enumerate(known.token_bytes) if raw and raw[0] > 0xF7)
    for at in range(len(ids)):
        for wrong in (dice.choice([*known.signs]), dice.randrange(len(known.token_bytes)), invalid):
            yield [*ids[:at], wrong, *ids[at + 1 :]]
        yield [*ids[:at], 10**9, *ids[at:]]
        yield ids[:at] + ids[at + 1 :]
        yield [*ids[:at], ids[at], *ids[at:]]


@sampled("name", names())  # 3 s: thousands of runs
def test_6_corrupting_any_id_gives_a_lawful_log_with_the_models_words(name: str) -> None:
    transcript = load(name)
    template, last = transcript.source["template"], transcript.parts[-1]

    async def run_all() -> None:
        for ids in corruptions(transcript):
            stage = staged(transcript, [replace(last, steps=(tuple(ids),))])
            await stage.play()
            lawful.check(stage.events(), snapshot(stage))
            reader: Any = stage.reader
            check_spans(reader)
            again = reader_of(template, transcript.source["begins"])
            stopped = snapshot(stage)["status"] == "completed"
            said = merged([*again.feed(ids), *again.finish(stopped=stopped)])
            assert again.kept == reader.kept
            assert lost_words(template, again.kept, said) == []

    asyncio.run(run_all())


@every_transcript
def test_7_the_kept_ids_are_those_that_were_written_and_messages_tile_them(name: str) -> None:
    transcript = load(name)
    stage = played(staged(transcript))
    reader: TemplateReader = stage.reader  # type: ignore[assignment]  # it was handed in
    wrote = [one for part in transcript.parts for one in part.ids]
    assert reader.kept == wrote[: len(reader.kept)]
    check_spans(reader)
    if reader.ended:
        assert reader.messages[-1].end == len(reader.kept)

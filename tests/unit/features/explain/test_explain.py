"""A run explained: the transcript that it writes is the one that it was."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections import Counter
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support import steering
from tests.support.golden import told
from tests.support.replay import PROMPT, Stage, load, names, staged, transcript_from
from trt_responses.errors import Forbidden
from trt_responses.features.explain.explain import Explainer
from trt_responses.features.explain.explanations import Outline, outline_of
from trt_responses.features.explain.transcript import transcript_of, written
from trt_responses.frozen import replace
from trt_responses.harmony.dialect import harmony
from trt_responses.tokens.control import VOCABULARY_SIZE
from trt_responses.wire.output import OutputMessage, OutputText

if TYPE_CHECKING:
    from tests.support.replay import Json, Transcript
    from trt_responses.harmony.read.reader import Tables
    from trt_responses.run.facts import RunFacts
    from trt_responses.tokens.vocabulary import Vocabulary


class Heard:
    """A listener that keeps what it hears."""

    facts: RunFacts

    def run_ended(self, facts: RunFacts) -> None:
        self.facts = facts

    @property
    def run(self) -> Outline:
        return outline_of(self.facts)


def played(transcript: Transcript, tables: Tables) -> Outline:
    heard = Heard()
    stage = Stage(tables, transcript.parts, transcript.tools, listener=heard)
    asyncio.run(stage.play())
    return heard.run


def again(source: Json, vocabulary: Vocabulary, tables: Tables) -> Json:
    """What the transcripts' own test sees of such a file."""
    read = json.loads(written(source))
    stage = staged(transcript_from(read, vocabulary), tables)
    asyncio.run(stage.play())
    return told(stage)


def expected(source: Json) -> Json:
    return {key: source[key] for key in ("log", "response", "repairs")}


@pytest.mark.parametrize("name", names())
def test_a_run_of_a_transcript_is_explained_by_that_transcript(
    name: str, vocabulary: Vocabulary, tables: Tables
) -> None:
    transcript = load(name, vocabulary)
    source = transcript_of(played(transcript, tables), name, harmony(vocabulary))
    assert expected(source) == expected(transcript.source)
    assert expected(source) == again(source, vocabulary, tables)


def without_message(source: Json) -> Json:
    """An engine's error stands for whatever a gate has found."""
    log = [line | ({"message": ""} if "message" in line else {}) for line in source["log"]]
    response = source["response"]
    return {"log": log, "response": response | {"error": response["error"] and ""}}


@pytest.mark.parametrize("name", steering.names())
def test_a_steered_run_is_explained_by_what_counted_of_it(
    name: str, vocabulary: Vocabulary, tables: Tables
) -> None:
    heard = Heard()
    transcript = steering.load(name, vocabulary)
    steering.play(transcript, vocabulary, tables, listener=heard)
    source = transcript_of(heard.run, name, harmony(vocabulary))
    assert without_message(source) == without_message(transcript.source)
    assert expected(source) == again(source, vocabulary, tables)


def ids_of_pieces(pieces: list[Json]) -> list[int]:
    return [i for piece in pieces for i in (piece["ids"] if "ids" in piece else [piece["id"]])]


def explained(run: Outline, vocabulary: Vocabulary, tables: Tables, *, redacts: bool) -> Json:
    explainer = Explainer(harmony(vocabulary), lambda _: {"kind": "scripted"}, redacts=redacts)
    told: Json = orjson.loads(orjson.dumps(explainer.explanation(run)))
    return told


@pytest.mark.parametrize("name", names())
def test_an_explanation_has_every_id_that_the_engine_was_given_or_gave(
    name: str, vocabulary: Vocabulary, tables: Tables
) -> None:
    transcript = load(name, vocabulary)
    run = played(transcript, tables)
    made = explained(run, vocabulary, tables, redacts=False)
    assert ids_of_pieces(made["prompt"]["pieces"]) == list(PROMPT)
    for segment, part in zip(made["segments"], transcript.parts, strict=False):
        assert ids_of_pieces(segment["forced"]) == list(part.forced)
        kept = ids_of_pieces(segment["kept"])
        assert kept == [i for i in part.ids if 0 <= i < VOCABULARY_SIZE][: len(kept)]
    repaired = Counter(f["repaired"] for f in made["fragments"] if "repaired" in f)
    named: Counter[str] = Counter(made["repairs"])
    del named["unknown_recipient"]  # the machine's, which knows the request's tools
    assert repaired == named


@pytest.mark.parametrize("name", ["foreign_user", "undecodable_id", "escapes_in_arguments"])
def test_a_redacted_explanation_says_no_word_and_no_ordinary_id(
    name: str, vocabulary: Vocabulary, tables: Tables
) -> None:
    run = played(load(name, vocabulary), tables)
    told = str(explained(run, vocabulary, tables, redacts=True))
    assert "'text'" not in told
    assert "'ids'" not in told
    assert "'tokens'" in told
    with pytest.raises(Forbidden):
        Explainer(harmony(vocabulary), lambda _: {}, redacts=True).transcript(run, name)


def test_ids_that_do_not_count_are_told_where_they_came(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    run = played(load("undecodable_id", vocabulary), tables)
    (segment,) = run.trace.segments
    assert len(segment.read) > len(segment.kept)
    assert [i for i in segment.read if i in segment.kept] == list(segment.kept)


def test_an_outline_takes_no_more_room_than_it_counts_however_long_the_texts_are(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    heard, transcript = Heard(), load("foreign_user", vocabulary)
    asyncio.run(Stage(tables, transcript.parts, transcript.tools, listener=heard).play())
    said = OutputMessage("msg_0", "final_answer", content=(OutputText("x" * 9000),))
    response = replace(heard.facts.response, output=(said,), instructions="y" * 9000)
    outline = outline_of(replace(heard.facts, response=response))
    room = outline.trace.size_bytes
    assert len(pickle.dumps(outline)) < room < len(pickle.dumps(response))

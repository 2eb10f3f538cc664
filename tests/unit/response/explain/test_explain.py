"""A run explained: the transcript that it writes is the one that it was."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support import steering
from tests.support.golden import told
from tests.support.replay import PROMPT, Stage, load, names, staged, transcript_from
from trt_responses.errors import Forbidden
from trt_responses.harmony.dialect import harmony
from trt_responses.response.explain.explain import Explainer
from trt_responses.response.explain.transcript import transcript_of, written
from trt_responses.tokens.control import VOCABULARY_SIZE

if TYPE_CHECKING:
    from tests.support.replay import Json, Transcript
    from trt_responses.harmony.read.reader import Tables
    from trt_responses.response.run.run import RunFacts
    from trt_responses.tokens.vocabulary import Vocabulary


class Heard:
    """A listener that keeps what it hears."""

    facts: RunFacts

    def run_ended(self, facts: RunFacts) -> None:
        self.facts = facts


def played(transcript: Transcript, tables: Tables) -> RunFacts:
    heard = Heard()
    stage = Stage(tables, transcript.parts, transcript.tools, listener=heard)
    asyncio.run(stage.play())
    return heard.facts


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
    source = transcript_of(heard.facts, name, harmony(vocabulary))
    assert without_message(source) == without_message(transcript.source)
    assert expected(source) == again(source, vocabulary, tables)


def ids_of_pieces(pieces: list[Json]) -> list[int]:
    return [i for piece in pieces for i in (piece["ids"] if "ids" in piece else [piece["id"]])]


def explained(facts: RunFacts, vocabulary: Vocabulary, tables: Tables, *, redacts: bool) -> Json:
    explainer = Explainer(harmony(vocabulary), lambda _: {"kind": "scripted"}, redacts=redacts)
    told: Json = orjson.loads(orjson.dumps(explainer.explanation(facts)))
    return told


@pytest.mark.parametrize("name", names())
def test_an_explanation_has_every_id_that_the_engine_was_given_or_gave(
    name: str, vocabulary: Vocabulary, tables: Tables
) -> None:
    transcript = load(name, vocabulary)
    facts = played(transcript, tables)
    made = explained(facts, vocabulary, tables, redacts=False)
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
    facts = played(load(name, vocabulary), tables)
    told = str(explained(facts, vocabulary, tables, redacts=True))
    assert "'text'" not in told
    assert "'ids'" not in told
    assert "'tokens'" in told
    with pytest.raises(Forbidden):
        Explainer(harmony(vocabulary), lambda _: {}, redacts=True).transcript(facts, name)


def test_ids_that_do_not_count_are_told_where_they_came(
    vocabulary: Vocabulary, tables: Tables
) -> None:
    facts = played(load("undecodable_id", vocabulary), tables)
    (segment,) = facts.trace.segments
    assert len(segment.read) > len(segment.kept)
    assert [i for i in segment.read if i in segment.kept] == list(segment.kept)

"""The demo model's objects, tools of agents and large sums: what its training shows of them."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING

import jsonschema

from scripts.demo import exam, wordings
from scripts.demo.asking import Source
from scripts.demo.conversation import encoding, prompt_text, reply_text
from scripts.demo.rows import Codec, encode, example
from scripts.demo.schemas import schema
from scripts.demo.sums import TOO_LARGE, python
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 11


def sources() -> tuple[Source, Source]:
    return Source(wordings.seen(), random.Random(SEED)), exam.exam_source(
        random.Random(SEED), held=True
    )


def test_names_in_an_object_are_the_guides_to_write_and_values_are_learnt() -> None:
    source, rng = Source(wordings.seen(), random.Random(SEED)), random.Random(SEED)
    for _ in range(60):
        dialogue = schema(source)
        prompt, turn = encode(prompt_text(dialogue)), dialogue.exchanges[-1].turn
        reply = encode(reply_text(turn, dialogue.setting.effort))
        one = example(dialogue, Codec.of([*prompt, *reply, *CONTROL]), rng, plain=True)
        parts: dict[bool, str] = {True: "", False: ""}
        for token, weight in zip(reply, one.weights[len(prompt) :], strict=True):
            learnt = bool(weight == 1)
            parts[learnt] += encoding().decode([token])
            parts[not learnt] += " " * learnt
        names = list(_named(json.loads(str(turn.final))))
        assert re.findall(r"\w+", parts[False]) == names
        assert parts[True].startswith("<|channel|>analysis")


def _named(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _named(inner)


def test_no_schema_of_the_training_has_a_name_that_is_held_back() -> None:
    seen, held = sources()
    assert set(seen.fields).isdisjoint(held.fields)
    for source, fields in ((seen, seen.fields), (held, held.fields)):
        for _ in range(100):
            dialogue = schema(source)
            reply = json.loads(str(dialogue.exchanges[-1].turn.final))
            assert set(_named(reply)) <= set(fields)


def test_the_object_of_a_reply_is_one_of_its_schema_and_says_what_the_question_says() -> None:
    for source in sources():
        for _ in range(100):
            dialogue = schema(source)
            form = dialogue.setting.format
            assert form is not None
            reply = json.loads(str(dialogue.exchanges[-1].turn.final))
            jsonschema.validate(reply, json.loads(form.schema))
            for part in dialogue.copied:
                assert part in dialogue.exchanges[-1].user


def test_a_large_sum_is_right_and_python_is_asked_for_what_the_question_asks() -> None:
    for source in sources():
        for _ in range(100):
            turn = python(source).exchanges[-1].turn
            if turn.final in (None, TOO_LARGE):
                continue
            asked, _, worth = str(turn.final).rstrip(".").partition(" = ")
            assert eval(asked, {}) == int(worth)

"""What a tuning of the demo model draws beside the families: well-formed, and not the judge's."""

from __future__ import annotations

import random
import re

import pytest

from scripts.demo import exam, tuning, wordings
from scripts.demo.asking import Source
from scripts.demo.conversation import THOUGHT, Dialogue, prompt_text
from scripts.demo.data import settled
from scripts.demo.families import FAMILIES
from scripts.demo.rows import Codec, encode, example
from scripts.demo.strangers import agents_instructions, strangers
from scripts.demo.talk import UNKNOWN
from trt_responses.tokens.control import CONTROL

SEED = 12


def source() -> Source:
    return Source(wordings.seen(), random.Random(SEED))


@pytest.mark.parametrize("name", tuning.MADE)
def test_every_reply_is_well_formed_and_copies_what_it_must(name: str) -> None:
    one = source()
    for _ in range(40):
        question = exam.Question(settled(tuning.MADE[name](one), one, padding=False))
        verdict = exam.judged(question, encode(question.expected))
        assert (verdict.well_formed, verdict.exact) == (True, True)
        assert verdict.copied is not False


def test_the_shares_are_of_families_and_of_what_is_made_here() -> None:
    assert set(tuning.MIX) == set(FAMILIES) - {"one_call"} | set(tuning.MADE)


def test_no_wording_is_held_back_or_one_of_the_judges() -> None:
    held = {wordings.core(text) for texts in wordings.held_back().values() for text in texts}
    judged = set()
    for stranger in strangers():
        sent = stranger.request["input"]
        last = sent if isinstance(sent, str) else str(sent[-1].get("content"))
        judged.add(re.sub(r"[0-9]+", "#", wordings.core(last)))
    seen = {wordings.core(text) for text in wordings.seen()["count"]}
    for wording in (*tuning.DIFFERENCES, *(set(map(wordings.core, tuning.DOWN)) - seen)):
        assert wordings.core(wording) not in held
        assert re.sub(r"\{[ab]\}", "#", wordings.core(wording)) not in judged, wording


def test_a_loop_without_thoughts_shows_none_and_learns_only_its_answer() -> None:
    rng, one = random.Random(SEED), source()
    shown = {True: 0, False: 0}
    while min(shown.values()) < 5:
        dialogue = tuning.draw(one)
        last = dialogue.exchanges[-1]
        if last.steps and not any(c.stored for step in last.steps for c in step.turn.calls):
            shown[last.unthought] += 1
            assert (_learnt(dialogue, rng) > 0) is not last.unthought
            asked = prompt_text(dialogue).rpartition("<|start|>user")[2]
            assert (THOUGHT in asked) is not last.unthought


def test_a_mail_without_a_tool_for_it_is_refused() -> None:
    one = source()
    made = [tuning.mail(one) for _ in range(60)]
    missing = [dialogue for dialogue in made if dialogue.family == "tool_missing"]
    assert 0 < len(missing) < len(made)
    for dialogue in missing:
        assert dialogue.exchanges[-1].turn.final == UNKNOWN
        assert not any("mail" in tool.name.lower() for tool in dialogue.setting.tools)


def test_a_report_is_a_sentence_where_it_says_temperature_and_sky_or_the_time() -> None:
    one = source()
    told = set()
    for _ in range(200):
        last = tuning.any_report(one).exchanges[-1]
        (answer,), final = last.steps[0].answers, str(last.turn.final)
        told.add(sentence := final.startswith("It is "))
        assert sentence is not final.endswith(answer)
    assert told == {True, False}


def test_a_handbook_is_as_long_as_an_agents_and_none_of_the_judges() -> None:
    judged = set(agents_instructions(7_000).splitlines()) - {""}
    books = [tuning.handbook(random.Random(seed)) for seed in range(40)]
    assert max(len(encode(book)) for book in books) > 700
    assert judged.isdisjoint(line for book in books for line in book.splitlines())


def _learnt(dialogue: Dialogue, rng: random.Random) -> int:
    """How many tokens before the reply count as much as the reply's."""
    prompt = encode(prompt_text(dialogue))
    reply = encode(exam.Question(dialogue).expected)
    one = example(dialogue, Codec.of([*prompt, *reply, *CONTROL]), rng)
    return int((one.weights[: len(prompt)] == 1).sum())

"""Forms that are read out of templates: prompts as transformers makes them, and calls read back."""

from __future__ import annotations

import json
import random
import re
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import forms_table, golden_renders, template_forms
from tests.support.template_families import checkpoint, tables
from tests.support.template_served import dialect_of
from tests.support.template_turns import check_spans, ids_of, lost_words, merged, reader_of, short
from tests.support.template_written import TURNS, thinking, turn_text, written
from trt_responses.dialects.templates.families import BY_NAME, from_dict, text_only, to_dict
from trt_responses.dialects.templates.forms import fitted
from trt_responses.dialects.templates.pieces import CALL_ID
from trt_responses.dialects.templates.write import template as write
from trt_responses.dialects.templates.write.template import Template
from trt_responses.language.messages import FunctionTool
from trt_responses.language.steering import Unguided
from trt_responses.prepare.shelf.card import DialectFacts

if TYPE_CHECKING:
    from tests.support.template_written import Written

Json = dict[str, Any]

CONVERSATIONS: list[Json] = json.loads(golden_renders.FILE.read_text("utf-8"))["conversations"]
FAST = {
    "ByteDance-Seed-OSS",
    "unsloth-Apriel-1.5",
    "Qwen-Qwen2.5-7B-Instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "moonshotai-Kimi-K2",
}
"""Tags, JSON, lists and names; the others take half a minute."""


def of(names: list[str]) -> list[Any]:
    return [
        pytest.param(name, marks=[] if name in FAST else pytest.mark.slow, id=name)
        for name in names
    ]


each = pytest.mark.parametrize("name", of(template_forms.names()))
each_with_calls = pytest.mark.parametrize("name", of(template_forms.with_calls()))


@each
def test_a_form_is_what_the_record_says(name: str) -> None:
    family, known = template_forms.family(name), template_forms.recorded()["templates"][name]
    assert ("" if family.calls is None else family.calls.body) == known["calls"]
    assert (family.no_calls if family.calls is None else "") == known["why"]
    assert (family.thought is not None) == known["thoughts"]
    assert (family.calls is not None and forms_table.guided(name)) == known["guided"]
    assert from_dict(to_dict(family)) == family


def test_the_page_shows_the_record() -> None:
    assert forms_table.shown() == forms_table.table()


@each
def test_a_prompt_is_what_transformers_makes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # patched: a template's date is that of the record
    monkeypatch.setattr(write, "_strftime_now", golden_renders.Today.now().strftime)
    family, template = template_forms.family(name), template_forms.template(name)

    def render(messages: list[Json], tools: list[Json] | None, switches: Json) -> str:
        return template.render(messages, tools, empty_tools=family.empty_tools, **switches)

    found = [golden_renders.shown(render, name, one) for one in CONVERSATIONS]
    assert found == template_forms.recorded()["templates"][name]["renders"]


@each_with_calls
def test_calls_are_read_as_the_template_wrote_them(name: str) -> None:
    for turn, size in product(TURNS, (1, 2, 7, 10_000)):
        one = written(name, turn)
        told = read_in_parts(name, one, size)
        assert [arguments(line) for line in told if is_call(line)] == one.calls
        assert [line for line in told if not is_call(line)] == one.others


@each_with_calls
def test_a_thought_is_read_as_the_template_wrote_it(name: str) -> None:
    turn = thinking(name, "Let me see.", "Fine.")
    if turn is None:
        return
    ids, begins = turn
    for size in (1, 3, 10_000):
        reader = reader_of(name, begins)
        parts = [ids[at : at + size] for at in range(0, len(ids), size)]
        fragments = [f for part in parts for f in reader.feed(part)]
        told = short(merged([*fragments, *reader.finish(stopped=True)]))
        assert [line.strip() for line in told] == ["analysis: Let me see.", "final: Fine."]


@each_with_calls
def test_one_id_removed_doubled_or_exchanged_loses_no_word(name: str) -> None:
    dice, known, own = random.Random(name), tables(name), words_of_the_form(name)
    if CALL_ID in str(template_forms.family(name).calls):
        return  # what a model writes as an id is dropped
    for turn in TURNS[:2]:
        one = written(name, turn)
        for at in range(0, len(one.ids), 3):
            other = dice.choice([*known.controls, dice.randrange(len(known.token_bytes))])
            for behind in (one.ids[at + 1 :], one.ids[at:], [other, *one.ids[at + 1 :]], []):
                ids = [*one.ids[: at + (behind == one.ids[at:])], *behind]
                reader = reader_of(name, one.begins)
                told = merged([*reader.feed(ids), *reader.finish(stopped=True)])
                check_spans(reader)
                assert {*lost_words(name, reader.kept, told)} <= own, told


@each_with_calls
def test_a_guide_follows_what_the_template_writes_or_is_refused(name: str) -> None:
    dialect, calls = dialect_of(name), template_forms.family(name).calls
    tool = FunctionTool("get_weather", "", forms_table.SCHEMA)
    assert calls is not None
    if not forms_table.guided(name):
        with pytest.raises(Unguided):
            dialect.arguments(forms_table.FORM, tool)
        return
    form, forms = dialect.arguments(forms_table.FORM, tool), dialect.places.forms
    if forms is None:
        assert form is forms_table.FORM
        return
    head = f"{calls.before_name}get_weather{calls.after_name}"
    for days, follows in ((2, True), ("two", False)):
        text = turn_text(name, "", [{"city": "Oslo", "days": days}])
        body = text.partition(head)[2].partition(calls.close or calls.section[1])[0]  # type: ignore[index]
        follower, ids = form.follow(), ids_of(name, body)
        told = [forms.marks.get(n) or dialect.tokeniser.bytes_of(n) for n in ids]
        assert (all(map(follower.feed, told)) and follower.departure() is None) is follows


@each_with_calls
def test_what_a_plan_forces_around_arguments_is_what_the_template_writes(name: str) -> None:
    places, tokeniser = dialect_of(name).places, checkpoint(name).tokeniser
    head = tokeniser.text((*places.first_call, *places.head("get_weather")))
    tail = tokeniser.text(places.tail)
    text = turn_text(name, "", [{"city": "Oslo"}]).replace("000000000", CALL_ID)
    assert head.strip() in text
    behind = text.partition(head.strip())[2]
    assert "Oslo" in behind
    assert re.sub(r"\s", "", tail) in re.sub(r"\s", "", behind)


def words_of_the_form(name: str) -> set[str]:
    """Words that belong to marks: `invoke`, `string`."""
    form = str(to_dict(template_forms.family(name))).replace("\\n", " ")
    return {"array", "boolean", *re.findall(r"[^\W\d_]{2,}", form)}


def read_in_parts(name: str, one: Written, size: int) -> list[str]:
    reader = reader_of(name, one.begins)
    parts = [one.ids[at : at + size] for at in range(0, len(one.ids), size)]
    fragments = [f for part in parts for f in reader.feed(part)]
    return short(merged([*fragments, *reader.finish(stopped=True)]))


def is_call(line: str) -> bool:
    return line.startswith("get_weather: ")


def arguments(line: str) -> Any:
    return json.loads(line.partition(": ")[2])


@pytest.mark.parametrize("name", ["qwen3", "qwen3_5_think", "glm4moe", "deepseek_v3_1"])
def test_a_row_says_what_its_template_writes(name: str) -> None:
    one = checkpoint(name)
    found = fitted(one.family, one.template.render, one.template.source)
    assert (found.calls, found.thought, found.switch) == (
        one.family.calls,
        one.family.thought,
        one.family.switch,
    )


def test_a_row_that_does_not_fit_is_no_gate() -> None:
    """Qwen2.5 has no thoughts and no switch, and the row of Qwen3 is found for it."""
    family = template_forms.family("Qwen-Qwen2.5-7B-Instruct")
    assert (family.name, family.thought, family.switch) == ("qwen3", None, None)
    assert family.calls == BY_NAME["qwen3"].calls


def test_a_template_that_shows_no_tools_has_them_described() -> None:
    family = template_forms.family("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B")
    assert family.describes_tools
    assert family.calls is not None


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ messages[-1].content }}", "shows no earlier calls"),
        (
            "{% for m in messages %}{% if m.tool_calls %}{{ raise_exception('no') }}{% endif %}"
            "{{ m.content }}{% endfor %}",
            "refuses a call: no",
        ),
    ],
)
def test_a_template_without_calls_says_why(source: str, why: str) -> None:
    found = fitted(text_only(()), Template(source).render, source)
    assert found.calls is None
    assert why in found.no_calls
    facts = DialectFacts(found.name, (), {}, to_dict(found))
    assert facts.sentence().endswith(f"It has no tools: {found.no_calls}.")

"""No text of a user, a tool, a name or a description ever becomes a control id."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.golden_renders import TEMPLATES, as_taken
from tests.support.template_families import CONTROLS, checkpoint
from trt_responses.dialects.templates.marks import SHIELD, SHIELDS, Marks, plain
from trt_responses.dialects.templates.write.template import TemplateError

Json = dict[str, Any]

FIELDS = ("content", "thought", "key", "value", "name", "result", "description", "schema", "system")


def asked(name: str, /, **texts: str) -> tuple[list[Json], list[Json]]:
    """A conversation whose texts are all `x`, but those that are given."""

    def text(field: str) -> str:
        return texts.get(field, "x")

    arguments = {text("key"): text("value"), "nested": {text("key"): [text("value")]}}
    call = {"type": "function", "function": {"name": text("name"), "arguments": arguments}}
    messages: list[Json] = [
        {"role": "system", "content": text("system")},
        {"role": "user", "content": text("content")},
        {
            "role": "assistant",
            "content": text("content"),
            "reasoning_content": text("thought"),
            "tool_calls": [call],
        },
        {"role": "tool", "content": text("result"), "name": text("name")},
    ]
    properties = {text("schema"): {"type": "string", "description": text("description")}}
    parameters = {"type": "object", "properties": properties, text("schema"): {text("key"): 1}}
    function = {"name": text("name"), "description": text("description")}
    tools = [{"type": "function", "function": {**function, "parameters": parameters}}]
    return as_taken(name, messages), tools


def controls_in(name: str, /, **texts: str) -> list[int]:
    """The control ids of the prompt, in their order."""
    one = checkpoint(name)
    marks, tokeniser = one.tokeniser.marks, one.tokeniser
    messages, tools = asked(name, **texts)
    rendered = one.template.render(marks.shielded_messages(messages), marks.shielded_tools(tools))
    return [number for number in tokeniser.encode(rendered) if number in tokeniser.controls]


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_control_string_in_any_field_becomes_a_control_id(name: str) -> None:
    usual = controls_in(name)
    assert len(usual) > 5
    for control in CONTROLS[name]:
        inside = control.strip("<>|[]｜")
        for spelled in (control, inside, f"/{inside}", f"a {control}{control} b"):
            for field in FIELDS:
                assert controls_in(name, **{field: spelled}) == usual, (field, spelled)


PARTS = st.sampled_from(
    [*CONTROLS["qwen3"], "<", ">", "|", "</", "|>", "<|im_", "think", "end|>", SHIELD, " ", "\n"]
)
TEXTS = st.lists(PARTS, max_size=4).map("".join)


@settings(max_examples=150)
@given(name=st.sampled_from(TEMPLATES), texts=st.fixed_dictionaries(dict.fromkeys(FIELDS, TEXTS)))
def test_nor_do_parts_of_them_that_come_to_stand_together(name: str, texts: Json) -> None:
    try:
        found = controls_in(name, **texts)
    except TemplateError:
        return
    plain_words = {field: "x" if text else text for field, text in texts.items()}
    assert sorted(found) == sorted(controls_in(name, **plain_words))


SIGNS = Marks(["<think>", "</think>", "<|im_end|>", "<|im_start|>", "[A]", "<a<b>"])


@settings(max_examples=500)
@given(texts=st.lists(st.text([*"<|/>[]Athinkmedsr_ab", *SHIELDS], max_size=12), max_size=5))
def test_shielded_texts_hold_no_control_string_and_lose_nothing(texts: list[str]) -> None:
    shielded = [SIGNS.shielded(text) for text in texts]
    assert [*map(plain, shielded)] == texts
    assert plain("".join(shielded)) == "".join(texts)
    for around in (("", ""), ("<", ">"), ("</", ">"), ("[", "]"), ("<|", "|>")):
        joined = "".join(text.join(around) for text in shielded)
        assert not any(is_control for _, is_control in SIGNS.pieces(joined))


def test_text_that_no_control_string_is_near_is_shown_as_it_is() -> None:
    for text in ("", "Hello", "a < b", "x > y", "user", '{"a": [1]}', "thinking"):
        assert SIGNS.shielded(text) == text
    assert Marks([]).shielded("<think>") == "<think>"


def test_words_of_schemas_stay_keys() -> None:
    marks = Marks(["<type>", "<think>"])
    assert marks.shielded_json({"type": "object"}) == {"type": "object"}
    assert marks.shielded_json({"think": 1}) != {"think": 1}

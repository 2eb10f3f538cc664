"""Which row a checkpoint has: by the operator, by its own words, by its marks, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.template_families import CHATML, CONTROLS, FOLDER
from trt_responses.dialects.templates.families import (
    find,
    json_calls,
    key_value_calls,
    xml_calls,
)
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.dialects.templates.families import Calls

QWEN = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*"},
        "tool_calls": {
            "open_pattern": r"<tool_call>\s*<function=(?P<name>[^\n>]+)>",
            "close_pattern": r"</tool_call>\s*",
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*"},
    },
}


def source(name: str) -> str:
    return (FOLDER / f"{name}.jinja").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("qwen3", "qwen3"),
        ("qwen3_5_think", "qwen3-xml"),
        ("nemotron_3_nano", "qwen3-xml"),
        ("glm4moe", "glm"),
        ("deepseek_v3_1", "deepseek-v3.1"),
        ("deepseekv3", "deepseek-r1"),
    ],
)
def test_a_row_is_known_by_its_marks_in_template_and_vocabulary(name: str, family: str) -> None:
    assert find(source(name), CONTROLS[name]).name == family
    lacking = [control for control in CONTROLS[name] if "call" not in control]
    assert find(source(name), lacking, terminators=["<end>"]).name == "text"


def test_a_template_without_known_marks_has_text_alone() -> None:
    family = find("{{ messages }}", CHATML, terminators=["<|im_end|>"])
    assert (family.name, family.thought, family.calls) == ("text", None, None)
    assert family.terminators == ("<|im_end|>",)


def test_the_operators_word_comes_first() -> None:
    said = find(source("qwen3"), CHATML, setting="qwen3-xml", response_template=QWEN)
    assert said.name == "qwen3-xml"
    assert find(source("qwen3"), CHATML, setting="text").calls is None


@pytest.mark.parametrize(
    ("setting", "word"), [("qwen4", "use one of"), ("glm", "needs tokens for")]
)
def test_a_wrong_word_is_refused(setting: str, word: str) -> None:
    with pytest.raises(StartupError, match=word):
        find(source("qwen3"), CHATML, setting=setting)


def test_the_checkpoints_own_words_come_before_the_table() -> None:
    family = find(source("qwen3"), CHATML, response_template=QWEN)
    assert family.name == "response_template"
    assert family.thought == ("<think>", "</think>")
    assert family.calls == xml_calls("<tool_call>", "</tool_call>")
    assert family.terminators == ("<|im_end|>",)


def changed(field: str, **values: object) -> dict[str, Any]:
    fields: dict[str, Any] = {**QWEN["fields"]}  # type: ignore[dict-item]
    return {"fields": {**fields, field: {**fields[field], **values}}}


@pytest.mark.parametrize(
    ("told", "calls"),
    [
        (changed("tool_calls", content="json", open_pattern="<tool_call>"), json_calls),
        (
            changed("tool_calls", content_args={"tag_pattern": "<arg_key>(?P<key>.+)</arg_key>"}),
            key_value_calls,
        ),
    ],
)
def test_bodies_of_a_response_template(
    told: dict[str, Any], calls: Callable[[str, str], Calls]
) -> None:
    family = find("", (), response_template=told)
    assert family.calls == calls("<tool_call>", "</tool_call>")


def test_a_thought_that_the_prompt_opens_has_its_mark_all_the_same() -> None:
    told = changed("reasoning_content", open=None, open_pattern=r"(?=[\s\S]*?</think>)")
    assert find("", (), response_template=told).thought == ("<think>", "</think>")


@pytest.mark.parametrize(
    "told",
    [
        {"version": 2, "fields": {}},
        {},
        changed("tool_calls", content="kv-lines"),
        changed("tool_calls", content="json", open_pattern=r'\{"name":\s*"(?P<name>[^"]+)"'),
        changed("tool_calls", close_pattern=None),
        changed("reasoning_content", close_pattern=r"\s*"),
    ],
)
def test_a_response_template_that_is_not_read_here_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(StartupError, match="name the model's family"):
        find("", (), response_template=told)

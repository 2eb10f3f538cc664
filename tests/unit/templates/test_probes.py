"""Probes: what is known of real templates, and templates that were altered in one place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.template_families import checkpoint
from trt_responses.errors import StartupError
from trt_responses.templates.families import BY_NAME, Switch, text_only
from trt_responses.templates.probes import contradictions, probe
from trt_responses.templates.write.template import Template

USUAL = {
    "tools": "shown",
    "arguments": "object",
    "developer": "dropped",
    "second_system": "shown",
    "results": "shown",
    "keeps_prefix": True,
    "keeps_prefix_without_thinking": True,
    "thoughts_in_loop": True,
    "thoughts_behind_turn": False,
    "switches": True,
}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("qwen3", {"keeps_prefix_without_thinking": False}),
        ("qwen3_5_think", {"developer": "refused", "second_system": "refused"}),
        ("nemotron_3_nano", {"developer": "shown"}),
        ("glm4moe", {}),
        (
            "deepseek_v3_1",
            {
                "tools": "dropped",
                "arguments": "string",
                "keeps_prefix": False,
                "thoughts_in_loop": False,
            },
        ),
    ],
)
def test_what_real_templates_do(name: str, others: dict[str, Any]) -> None:
    one = checkpoint(name)
    assert probe(one.template, one.family).told() == USUAL | others


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("{%- if tools %}", "{%- if false %}", "tools are dropped"),
        ("{%- if tools %}", "{%- if tools %}{{ raise_exception('no') }}", "tools are refused"),
        ("tool_call.arguments | tojson", "'{}'", "takes string"),
        ("{{- content }}\n        {{- '\\n</tool_response>", "{{- '\\n</tool_response>", "results"),
        ("enable_thinking is false", "false", "the same either way"),
    ],
)
def test_an_altered_template_is_found_with_both_values(old: str, new: str, word: str) -> None:
    source = checkpoint("qwen3").template.source
    assert old in source
    with pytest.raises(StartupError, match=f"family 'qwen3' says.*{word}"):
        probe(Template(source.replace(old, new)), BY_NAME["qwen3"])


def test_a_row_that_says_otherwise_is_found() -> None:
    one = checkpoint("glm4moe")
    found = probe(one.template, one.family)
    assert contradictions(found, one.family) == []
    assert contradictions(found, replace(one.family, arguments="string"))
    other = replace(one.family, switch=Switch("another_name"))
    with pytest.raises(StartupError, match="another_name"):
        probe(one.template, other)


def test_a_template_that_takes_no_user_is_no_template() -> None:
    with pytest.raises(StartupError, match=r"refuses a single user's message.*nobody"):
        probe(Template("{{ raise_exception('nobody') }}"), text_only(()))


def test_nothing_is_asked_of_a_template_of_which_nothing_is_known() -> None:
    found = probe(Template("{{ messages[-1].content }}"), text_only(()))
    assert (found.tools, found.switches, found.keeps_prefix) == ("dropped", False, False)

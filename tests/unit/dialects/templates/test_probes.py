"""Probes: what is known of real templates, and templates that were altered in one place."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Any

import pytest

from tests.support.processes import children_of
from tests.support.template_families import checkpoint
from trt_responses.dialects.templates.dialect import TemplateDialect
from trt_responses.dialects.templates.families import BY_NAME, Switch, text_only
from trt_responses.dialects.templates.probes import contradictions, probe
from trt_responses.dialects.templates.write.template import Template, TemplateLimitError
from trt_responses.errors import StartupError

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
    assert asdict(probe(one.template.render, one.family)) == USUAL | others


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("{%- if tools %}", "{%- if false %}", "tools are dropped"),
        ("{%- if tools %}", "{%- if tools %}{{ raise_exception('no') }}", "tools are refused"),
        ("tool_call.arguments | tojson", "'{}'", "accepts string"),
        ("{{- content }}\n        {{- '\\n</tool_response>", "{{- '\\n</tool_response>", "results"),
        ("enable_thinking is false", "false", "ignores that variable"),
    ],
)
def test_an_altered_template_is_found_with_both_values(old: str, new: str, word: str) -> None:
    source = checkpoint("qwen3").template.source
    assert old in source
    with pytest.raises(StartupError, match=f"family 'qwen3': .*{word}"):
        probe(Template(source.replace(old, new)).render, BY_NAME["qwen3"])


def test_a_row_that_says_otherwise_is_found() -> None:
    one = checkpoint("glm4moe")
    found = probe(one.template.render, one.family)
    assert contradictions(found, one.family) == []
    assert contradictions(found, replace(one.family, arguments="string"))
    other = replace(one.family, switch=Switch("another_name"))
    with pytest.raises(StartupError, match="another_name"):
        probe(one.template.render, other)


def test_a_template_that_takes_no_user_is_no_template() -> None:
    with pytest.raises(StartupError, match=r"refuses a single user message.*nobody"):
        probe(Template("{{ raise_exception('nobody') }}").render, text_only(()))


def test_nothing_is_asked_of_a_template_of_which_nothing_is_known() -> None:
    found = probe(Template("{{ messages[-1].content }}").render, text_only(()))
    assert (found.tools, found.switches, found.keeps_prefix) == ("dropped", False, False)


def test_a_template_that_takes_too_long_is_probed_no_further() -> None:
    rendered = 0

    def render(*asked: object, **switches: object) -> str:
        nonlocal rendered
        rendered += 1
        raise TemplateLimitError("The chat template took longer than 10 s.")

    with pytest.raises(StartupError, match="took longer than 10 s"):
        probe(render, text_only(()))
    assert rendered == 1


def test_a_dialect_probes_its_template_within_the_limits_of_serving() -> None:
    """Two gigabytes are more than the process may have that renders; this one may have them."""
    one = checkpoint("qwen3")
    source, ends = "{{ 'x' * (2 * 10**9) }}", [one.tokeniser.control_id("<|im_end|>")]
    dialect = TemplateDialect(Template(source), one.tokeniser, text_only(()), ends)
    children = set(children_of(os.getpid()))
    with pytest.raises(StartupError, match="MemoryError"):
        dialect.probed()
    assert dialect.fitted().form()["calls"] is None
    assert set(children_of(os.getpid())) <= children

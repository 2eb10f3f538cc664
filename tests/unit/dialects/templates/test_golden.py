"""Prompts as transformers makes them: the same text from the same template and conversation."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.golden_renders import FILE, FOLDER, SPECIAL, TEMPLATES, as_taken
from tests.support.template_families import checkpoint
from trt_responses.dialects.templates.write.template import Template

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

GOLDEN: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
every_template = pytest.mark.parametrize("name", TEMPLATES)


@cache
def template(name: str) -> Template:
    return Template((FOLDER / f"{name}.jinja").read_text("utf-8"), SPECIAL)


def cases(name: str) -> Iterator[tuple[list[Json], list[Json], Json, str]]:
    told = zip(GOLDEN["conversations"], GOLDEN["renders"][name], strict=True)
    for one, golden in told:
        yield as_taken(name, one["messages"]), one["tools"], one["switches"], golden


@every_template
def test_a_prompt_is_what_transformers_makes(name: str) -> None:
    for messages, tools, switches, golden in cases(name):
        assert template(name).render(messages, tools, **switches) == golden


@every_template
def test_shields_change_nothing_in_a_prompt(name: str) -> None:
    tokeniser = checkpoint(name).tokeniser
    for messages, tools, switches, golden in cases(name):
        rendered = template(name).render(
            tokeniser.marks.shielded_messages(messages),
            tokeniser.marks.shielded_tools(tools),
            **switches,
        )
        assert tokeniser.text(tokeniser.encode(rendered)) == golden

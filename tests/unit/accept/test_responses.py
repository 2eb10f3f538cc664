"""A request is read once, into a value that all the rest is made from."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from tests.support.imports import PACKAGE, imports, modules
from tests.support.requests import accepted
from trt_responses.accept.accepted import (
    AnswerFormat,
    Grammar,
    ThoughtBudget,
    Tool,
    ToolChoice,
)
from trt_responses.errors import InvalidRequest, refuse_longer
from trt_responses.log.item_events import Callee

F = {"type": "function", "name": "f", "description": "Does f.", "strict": True}
REGEX = {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}
C = {"type": "custom", "name": "c", "format": REGEX}
SPACE = {"type": "namespace", "name": "n", "description": "A space.", "tools": [F, C]}
SCHEMA = {"type": "json_schema", "name": "s", "schema": {}}


def test_tools_are_flat_and_known_by_both_their_names() -> None:
    asked = accepted({"tools": [{"type": "web_search"}, F, SPACE]})
    assert asked.tools == [
        Tool("f", "tools[1]", Callee("f"), "Does f.", strict=True),
        Tool("n__f", "tools[2].tools[0]", Callee("f", "n"), "A space.\nDoes f.", strict=True),
        Tool(
            "n__c",
            "tools[2].tools[1]",
            Callee("c", "n", custom=True),
            grammar=Grammar("regex", "[a-z]+"),
        ),
    ]
    assert [tool.promise for tool in asked.tools] == ["strict", "strict", "format"]
    assert asked.tools[1].recipient == "functions.n__f"
    assert asked.unsupported_tools == ["web_search"]
    assert [tool["type"] for tool in asked.echo.tools] == ["function", "namespace"]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice(frozenset("fc"))),
        ("none", ToolChoice(frozenset(), narrows=True)),
        ("required", ToolChoice(frozenset("fc"), may_answer=False, narrows=True)),
        ({"type": "custom", "name": "c"}, ToolChoice(frozenset("c"), False, True)),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            ToolChoice(frozenset("f"), True, True),
        ),
    ],
)
def test_a_choice_is_the_tools_that_may_be_called(choice: Any, expected: ToolChoice) -> None:
    assert accepted({"tools": [F, C], "tool_choice": choice}).choice == expected


@pytest.mark.parametrize(
    ("asked", "thought"),
    [
        ({}, None),
        ({"effort": "high"}, None),
        ({"effort": "none"}, ThoughtBudget(0, "reasoning.effort")),
        ({"effort": "minimal", "max_tokens": 9}, ThoughtBudget(9, "reasoning.effort")),
        ({"effort": "minimal", "max_tokens": 999}, ThoughtBudget(64, "reasoning.effort")),
        ({"max_tokens": 0}, ThoughtBudget(0, "reasoning.max_tokens")),
    ],
)
def test_effort_and_bound_come_to_one_budget(
    asked: dict[str, object], thought: ThoughtBudget | None
) -> None:
    value = accepted({"reasoning": asked})
    assert (value.effort, value.thought) == (asked.get("effort"), thought)


@pytest.mark.parametrize(
    ("form", "answer"),
    [
        ({"type": "text"}, None),
        (
            {"type": "json_object"},
            AnswerFormat("text.format", "json_object", "A JSON object.", None),
        ),
        (SCHEMA, AnswerFormat("text.format", "s", None, {})),
    ],
)
def test_the_form_of_an_answer(form: dict[str, object], answer: AnswerFormat | None) -> None:
    value = accepted({"text": {"format": form}})
    assert value.answer == answer
    assert value.echo.text == {"format": form, "verbosity": "medium"}


def test_the_tools_of_a_choice_are_looked_up_and_not_searched_for() -> None:
    """As many as a request may name take a small part of what the tools themselves take."""
    fresh = itertools.count()

    def tools() -> list[dict[str, str]]:
        """Tools that have not come before."""
        told = str(next(fresh))
        return [{"type": "function", "name": f"t{n}", "description": told} for n in range(1000)]

    def cpu_s(named: int) -> float:
        names = [{"type": "function", "name": f"t{n}"} for n in range(named)]
        choice = {"type": "allowed_tools", "mode": "auto", "tools": names}
        return min(_timed({"tools": tools(), "tool_choice": choice}) for _ in range(3))

    assert cpu_s(1000) < 3 * cpu_s(1)


def _timed(body: dict[str, object]) -> float:
    start = time.process_time()
    accepted(body)
    return time.process_time() - start


BEHIND = ("accept", "log", "prompt", "run", "steering")


def test_nothing_behind_reads_a_request() -> None:
    readers = {
        module
        for module, path in modules(PACKAGE).items()
        if module.startswith(tuple(f"{PACKAGE}.{room}." for room in BEHIND))
        and any(name.startswith(f"{PACKAGE}.wire.request") for name in imports(module, path))
    }
    assert f"{PACKAGE}.accept.responses" in readers
    assert {name.rpartition(".")[0] for name in readers} == {f"{PACKAGE}.accept"}


def test_one_judge_says_that_a_prompt_is_too_long() -> None:
    refuse_longer(9, 9)
    refuse_longer(9, None)
    with pytest.raises(InvalidRequest, match="at least 10 tokens, limit 9") as caught:
        refuse_longer(10, 9)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    words = {
        module
        for module, path in modules(PACKAGE).items()
        if "context_length_exceeded" in path.read_text()
    }
    assert words == {f"{PACKAGE}.engines.trtllm.engine", f"{PACKAGE}.errors"}

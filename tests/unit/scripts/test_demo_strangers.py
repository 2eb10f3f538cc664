"""The questions of strangers: no training has them, and their answers are graded by rules."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from scripts.demo import prose, wide, wild, wordings
from scripts.demo.rows import encode
from scripts.demo.strangers import Stranger, agents_instructions, mark, strangers, table
from scripts.demo.talk import SKILLS, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERYDAY = 4
"""Words of a question that anybody says: a greeting, or who is there."""
FILED = Stranger(
    "tools",
    {
        "input": "file it: the lamp is dark",
        "tools": [
            {
                "type": "function",
                "name": "file",
                "parameters": {
                    "type": "object",
                    "properties": {"title": {"type": "string"}, "level": {"enum": ["low", "high"]}},
                    "required": ["title"],
                },
            }
        ],
    },
    {"call": "file", "arguments": {"title": "the lamp is dark"}},
)
TALK = Stranger("sums", {"input": "2 + 2?"}, {"right": ["4"]})
FORM = Stranger(
    "prose",
    {"input": "Ann is 3", "text": {"format": {"schema": {
        "type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}}}},
    {"json": {"age": 3}},
)  # fmt: skip


def said(text: str, status: str = "completed") -> dict[str, Any]:
    message = {"type": "message", "content": [{"type": "output_text", "text": text}]}
    return {"status": status, "output": [message]}


def called(arguments: str, name: str = "file") -> dict[str, Any]:
    call = {"type": "function_call", "name": name, "arguments": arguments}
    return {"status": "completed", "output": [call]}


def right_answer(stranger: Stranger) -> dict[str, Any]:
    rule = stranger.rule
    if "call" in rule:
        return called(json.dumps(rule["arguments"]), rule["call"])
    if "json" in rule:
        return said(json.dumps(rule["json"]))
    return said(" ".join(rule["right"]) if "right" in rule else UNKNOWN)


def user_texts(stranger: Stranger) -> Iterator[str]:
    sent = stranger.request["input"]
    items = [{"role": "user", "content": sent}] if isinstance(sent, str) else sent
    yield from (item["content"] for item in items if item.get("role") == "user")


def test_each_question_has_an_answer_that_its_rule_calls_right() -> None:
    questions = strangers()
    assert len(questions) >= 500
    for question in questions:
        found = mark(question, right_answer(question))
        expected = "honest" if set(question.rule) <= {"honest", "long"} else "right"
        assert (found.grade, found.ended, found.valid in (True, None)) == (expected, True, True)


def test_no_question_is_a_wording_of_the_training() -> None:
    """However it is dressed; but for what everybody says, such as `Hello`."""
    lines = (
        *(text for texts in wordings.seen().values() for text in texts),
        *(*wild.wild().lines, *prose.lists().lines, *prose.lists().chosen),
        *(line for tool in wide.lists().tools for line in tool.lines),
    )
    seen = {wordings.core(line) for line in lines if "{" not in line}
    for stranger in strangers():
        *_, last = user_texts(stranger)
        if len(last.split()) > EVERYDAY:
            assert wordings.core(last) not in seen, last


def test_no_tool_that_training_makes_has_a_name_of_the_judges() -> None:
    """But for the weather's, which README shows and an older family has."""
    judged = wide.judged()
    assert len(judged) >= 20
    assert judged.isdisjoint(name for tool in wide.lists().tools for name in tool.names)
    rng = random.Random(5)
    assert judged.isdisjoint(wide.asked(rng).tool.name for _ in range(400))


@pytest.mark.parametrize(
    ("stranger", "response", "grade", "valid"),
    [
        (FILED, called('{"title":"The lamp is dark."}'), "right", True),
        (FILED, called('{"title":"the lamp"}'), "wrong", True),
        (FILED, called('{"title":"the lamp is dark","level":"mid"}'), "wrong", False),
        (FILED, called('{"title":"' + "Delhi" * 100 + '"}'), "wrong", False),
        (FILED, called('{"title":'), "wrong", False),
        (FILED, called('{"title":"the lamp is dark"}', "other"), "wrong", False),
        (FILED, said("Filed."), "wrong", None),
        (FILED, said(UNKNOWN), "honest", None),
        (TALK, said("2 + 2 = 4."), "right", None),
        (TALK, said("2 + 2 = 41."), "wrong", None),
        (TALK, said(SKILLS), "honest", None),
        (TALK, said("I cannot."), "wrong", None),
        (TALK, said("4" + " and" * 200), "wrong", None),
        (TALK, said("2 + 2 = 4.", "incomplete"), "wrong", None),
        (TALK, called("{}"), "wrong", False),
        (FORM, said('{"age":3}'), "right", True),
        (FORM, said('{"age":"3"}'), "wrong", False),
        (FORM, said(UNKNOWN), "wrong", False),
    ],
)
def test_answers_are_graded_by_the_rule(
    stranger: Stranger, response: dict[str, Any], grade: str, valid: bool | None
) -> None:
    found = mark(stranger, response)
    assert (found.grade, found.valid) == (grade, valid)


def test_the_table_counts_answers_by_family() -> None:
    greedy = [mark(TALK, said("4")), mark(FORM, said("4"))]
    drawn = [mark(TALK, said("5")), mark(FORM, said('{"age":3}'))]
    shown = table(greedy, drawn)
    assert "| sums | 1 | 100.0 % | 0.0 % | 0.0 % | 0.0 % |" in shown
    assert "| **all** | 2 | 50.0 % | 0.0 % | 50.0 % | 50.0 % |" in shown
    assert "Valid: 0.0 %, at 1 100.0 %" in shown


def test_an_agents_instructions_are_as_long_as_a_rule_says() -> None:
    assert 6_000 < len(encode(agents_instructions(7_000))) < 8_500

"""Typed texts of several lines."""

from __future__ import annotations

import pytest

from trt_responses.cli.terminal.typed import question, unfinished


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("one", "one"),
        ("one\\\ntwo", "one\ntwo"),
        ('"""\none\ntwo\\\n"""', "one\ntwo\\"),
        ('"""one"""', "one"),
        ('say """ twice', 'say """ twice'),
    ],
)
def test_a_question(typed: str, sent: str) -> None:
    assert not unfinished(typed)
    assert question(typed) == sent


@pytest.mark.parametrize("typed", ["one\\", '"""', '"""\none', '"""one\\'])
def test_an_unfinished_one(typed: str) -> None:
    assert unfinished(typed)

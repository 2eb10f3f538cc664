"""What the roll-out says of turns that are lost, or in a history twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from scripts.rollout.load import Conversation, Tally, Users


class Remembered(Conversation):
    """A conversation with this history."""

    history: Counter[str]

    async def marks(self) -> Counter[str]:
        return self.history


def judged(history: dict[str, int], sent: dict[str, int]) -> list[str]:
    client, tally = cast("Any", None), Tally(sent=Counter(sent))
    held = Remembered(0, client, tally, seen=[*sent])
    held.history = Counter(history)
    return asyncio.run(Users(client, tally, 1, 1, [held]).judged())


@pytest.mark.parametrize(
    ("history", "sent", "found"),
    [
        ({"c0t0": 1, "c0t1": 1}, {"c0t0": 1, "c0t1": 2}, []),
        ({"c0t0": 1}, {"c0t0": 1, "c0t1": 1}, ["lost c0t1"]),
        ({"c0t0": 2}, {"c0t0": 1}, ["doubled c0t0"]),
        ({"c0t0": 2}, {"c0t0": 2}, []),
        ({"c0t0": 3}, {"c0t0": 2}, ["doubled c0t0"]),
    ],
)
def test_a_server_doubles_a_turn_that_is_kept_more_often_than_it_was_sent(
    history: dict[str, int], sent: dict[str, int], found: list[str]
) -> None:
    assert judged(history, sent) == found

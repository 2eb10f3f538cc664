"""One script seen through every API: the same ids in the engine, text, calls and usage."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.views import VIEWS, through


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_shows_the_engine_and_the_client_what_all_views_do(name: str) -> None:
    expected = asyncio.run(through(VIEWS["Responses"]))
    seen = asyncio.run(through(VIEWS[name]))
    assert [turn.said for turn in seen] == [turn.said for turn in expected]
    assert [turn.ids for turn in seen] == [turn.ids for turn in expected]
    first, last = (turn.said for turn in seen)
    assert first.calls == (("weather", '{"city":"Bern"}'),)
    assert (first.thought, last.thought) == ("I need the weather.", "It rains.")
    assert (first.text, last.text) == ("", "Take an umbrella.")

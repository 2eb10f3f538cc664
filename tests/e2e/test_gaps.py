"""The gate of gaps: its verdict, and some of its inputs."""

from __future__ import annotations

import asyncio

import pytest

from scripts.faults.gaps import MOST_S, QUIET_S, Verdict, play
from tests.support.boxed import no_box

SHOWN = (
    *("text: Thai", "form: a chain of references", "grammar: rules", "MCP: a result of 20,000"),
    *("upload: parts of a name", "frame of no type", "WebSocket: pings"),
)
"""One of each door; `make gaps` plays all."""
BESIDE = 10
"""Other tests run beside: a moment that looks quiet may not be, so the wall clock has more here."""


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    return asyncio.run(play(*SHOWN))


def verdict(hold_s: float, wall_s: float, *, quiet: bool) -> Verdict:
    return Verdict("an input", "200", hold_s, wall_s, 0.0, quiet)


def test_a_gap_is_red_by_the_wall_clock_where_it_is_quiet_and_else_by_the_servers_work() -> None:
    long, short = MOST_S * 2, MOST_S / 2
    assert QUIET_S < MOST_S
    assert verdict(short, long, quiet=True).is_red
    assert verdict(long, long, quiet=False).is_red
    assert not verdict(short, long, quiet=False).is_red
    assert verdict(short, long, quiet=False).is_unclear
    assert not verdict(short, short, quiet=True).is_unclear


@pytest.mark.xdist_group("gaps")  # one server plays all, once per process
@pytest.mark.parametrize("name", SHOWN)
def test_no_input_holds_the_stream(name: str, verdicts: list[Verdict]) -> None:
    if name.startswith("upload") and (why := no_box()):
        pytest.skip(why)
    (found,) = (one for one in verdicts if name in one.name)
    assert found.hold_s <= MOST_S, found
    assert not found.quiet or found.wall_s <= MOST_S * BESIDE, found

"""What is computed of front ends and of the embedded engine, from figures that are given: nothing
is timed, and no server is started. Budget: 3 s."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from bench import embedded, fleet
from bench.check import Wrong
from bench.hosted import Paced
from tests.support.idle import left_to_do
from tests.support.scripted.engine import Script, ScriptedEngine
from trt_responses.engine import Gathered, GenerateOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType
    from rich.table import Table


def cost(fronts_s: Iterable[float], engine_s: float = 0.0, *, wall_s: float = 1.0) -> fleet.Cost:
    return fleet.Cost(1_000_000, wall_s, tuple(fronts_s), engine_s)


def row(
    alone: list[fleet.Cost], one: list[fleet.Cost], two: list[fleet.Cost], steps: int = 0
) -> fleet.Row:
    return fleet.Row(1, steps, tuple(alone), tuple(one), tuple(two))


def test_two_front_ends_are_as_fast_as_the_busier_one() -> None:
    told = row([cost([10.0])], [cost([8.0], 2.0)], [cost([5.0, 3.0], 2.0)])
    assert told.two[0].capacity == 200_000
    assert told.two[0].share == 5 / 8
    assert told.scale == pytest.approx(8 / 5)


def test_the_clock_on_the_wall_is_no_part_of_the_scale() -> None:
    slow = [cost([5.0, 3.0], 2.0, wall_s=99.0)]
    assert row([cost([10.0])], [cost([8.0])], slow).scale == pytest.approx(8 / 5)


def test_the_way_to_an_engine_process_is_what_both_take_above_the_engine_inside() -> None:
    told = row([cost([10.0])], [cost([8.0], 3.5)], [cost([5.0, 3.0])])
    assert told.hop_front == pytest.approx(-0.2)
    assert told.hop == pytest.approx(0.15)


def test_contenders_are_compared_with_their_neighbours_in_time() -> None:
    """The machine became twice as slow half-way."""
    told = row(
        [cost([10.0]), cost([20.0])],
        [cost([8.0], 2.0), cost([16.0], 4.0)],
        [cost([4.0, 4.0]), cost([8.0, 8.0])],
    )
    assert (told.scale, told.hop, told.hop_front) == pytest.approx((2.0, 0.0, -0.2))


def test_a_goal_that_is_missed_is_told_so() -> None:
    good = row([cost([10.0])], [cost([8.0], 2.0)], [cost([4.5, 3.5])])
    bad = row([cost([10.0])], [cost([8.0], 4.0)], [cost([6.0, 2.0])])
    scale, hop = fleet.tables([good, bad])
    assert scale.row_count == hop.row_count == 2
    assert goals(scale) == ["[green]≥ 1.7[/]", "[red]missed: 1.7[/]"]
    assert goals(hop) == ["[green]≤ 15%[/]", "[red]missed: 15%[/]"]


def goals(table: Table) -> list[RenderableType]:
    (column,) = (column for column in table.columns if column.header == "goal")
    return [*column.cells]


def test_the_shares_of_the_engines_own_speed_are_of_the_run_just_before() -> None:
    told = embedded.Row(8, (100.0, 50.0, 80.0), (96.0, 49.0, 72.0), (90.0, 50.0, 80.0))
    assert told.shares == pytest.approx((0.96, 1.0))
    assert embedded.table([told]).row_count == 1


def test_a_stream_that_failed_or_broke_off_is_not_timed() -> None:
    last = b'event: response.completed\ndata: {"response": {"status": "%b", "error": null, '
    last += b'"usage": {"input_tokens": 3, "output_tokens": 4}}}\n\n'
    whole = b"event: a\ndata: {}\n\n" + last + b"data: [DONE]\n\n"
    usage = embedded.usage_of(whole % b"completed")
    assert (usage["input_tokens"], usage["output_tokens"]) == (3, 4)
    with pytest.raises(Wrong, match="ended failed"):
        embedded.usage_of(whole % b"failed")
    with pytest.raises(Wrong, match="ends with"):
        embedded.usage_of(whole[: whole.index(b'"usage"')])


def test_a_paced_engine_says_the_whole_script_and_its_clock_rests_without_work() -> None:
    async def story() -> None:
        clock = Paced(0.0001)
        engine = ScriptedEngine([Script(((1,), (2,), (3,)))], clock=clock)
        await engine.start()
        for _ in range(2):  # it is woken again
            answer = Gathered()
            engine.generate((9,), GenerateOptions(10, ()), answer)
            await answer.last
            assert answer.token_ids == [1, 2, 3]
        taken = clock.steps
        assert left_to_do() == []
        assert 6 <= taken <= 8

    asyncio.run(story())

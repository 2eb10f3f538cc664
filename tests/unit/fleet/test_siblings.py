"""A scrape of any front end speaks for all of them, and no count goes back when one dies."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from trt_responses.features.metrics.metrics import Metrics
from trt_responses.fleet.siblings import Siblings

if TYPE_CHECKING:
    from pathlib import Path


def metrics() -> Metrics:
    made = Metrics(model="m", engine="e", versions=tuple, version="1")
    made.reading("responses_running", "Responses being made.", lambda: 2)
    return made


def joined(folder: Path, number: int) -> tuple[Metrics, Siblings]:
    made = metrics()
    siblings = Siblings(folder, number, 2, made)
    made.others = siblings.others
    return made, siblings


async def told(made: Metrics) -> dict[str, float]:
    text = made.text(await made.others()).decode()
    found = re.findall(r"^(trt_responses_[a-z_]+)(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


COUNT, SUM = "trt_responses_inter_token_seconds_count", "trt_responses_inter_token_seconds_sum"
RUNNING = "trt_responses_responses_running"


def test_counts_and_gauges_of_all_are_added_whoever_is_asked(tmp_path: Path) -> None:
    async def run() -> None:
        one, first = joined(tmp_path, 0)
        other, second = joined(tmp_path, 1)
        async with first.life(), second.life():
            one.gap_s.observe(0.5, 3)
            other.gap_s.observe(0.25, 4)
            for made in (one, other):
                found = await told(made)
                assert (found[COUNT], found[SUM], found[RUNNING]) == (7, 2.5, 4)

    asyncio.run(run())


def test_a_front_end_that_died_is_counted_once_by_those_left_and_by_its_successor(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        one, first = joined(tmp_path, 0)
        dies, second = joined(tmp_path, 1)
        async with first.life():
            async with second.life():
                one.gap_s.observe(0.5, 3)
                dies.gap_s.observe(0.25, 4)
                assert (await told(one))[COUNT] == 7
            found = await told(one)
            assert (found[COUNT], found[RUNNING]) == (7, 2)
            successor, third = joined(tmp_path, 1)
            async with third.life():
                successor.gap_s.observe(0.25)
                for made in (one, successor):
                    assert (await told(made))[COUNT] == 8

    asyncio.run(run())

"""What was measured beside its goal, as values and as pictures. Knows the report and its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bench import burst, burst_gaps, embedded, fleet
from bench.machine import MOST_SPREAD
from bench.pictures import Bar, Chart, draw_png, has_png, svg
from bench.report import (
    CHAT_GOAL,
    FIFTY_TOOLS_GOAL_US,
    FIVE_TOOLS_GOAL_US,
    HOLD_GOAL_US,
    HOP_GOALS,
    LENGTH_GOAL,
    NEXT_TURN_GOAL,
    ONE_STEP_GOAL,
    SCRAPE_GOAL_US,
    SCRAPES_GOAL,
    STORED_GOAL_MIB,
    TRAP_GOAL_US,
    WIRE_GOAL,
)
from bench.timing import ratio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

    from bench.report import Report


class Goal(NamedTuple):
    """One measurement, with its goal where it has one."""

    name: str
    measured: float
    goal: float | None
    unit: str
    at_least: bool = False
    """Whether the measurement should be the goal or more; else the goal or less."""

    @property
    def met(self) -> bool:
        assert self.goal is not None
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal

    @property
    def share(self) -> float:
        """How much of the goal is used up: 1 is just met, above it is missed."""
        assert self.goal is not None
        return self.goal / self.measured if self.at_least else self.measured / self.goal


def draw(report: Report, results: Path, console: Console) -> None:
    """The pictures, beside the file of the results: as SVG always, as PNG where that can be."""
    for name, chart in charts(report).items():
        path = results.with_name(f"{results.stem}-{name}.svg")
        path.write_text(svg(chart))
        console.print(path)
        if has_png():
            draw_png(chart, path.with_suffix(".png"))
    if not has_png():
        console.print("No PNG: matplotlib is not installed here; `make bench` brings it.")


def charts(report: Report) -> dict[str, Chart]:
    """The charts there is something to show in, by the name of their file."""
    cpu = str(report.machine["cpu"])
    floors = tuple(_floor_bar(goal) for goal in by_floor(report))
    shares = tuple(_share_bar(goal) for goal in goals(report))
    peers = tuple(_peer_bars(report))
    found = {
        "floor": Chart("CPU time for each token, by the floor's", cpu, floors, 1.0, "the floor"),
        "goals": Chart("Measured, by its goal", cpu, shares, 1.0, "the goal"),
        "peers": Chart(
            "CPU time for each token, by the floor's", cpu, peers, 1.0, "the floor", log=True
        ),
    }
    return {name: chart for name, chart in found.items() if chart.bars}


def _floor_bar(goal: Goal) -> Bar:
    good = None if goal.goal is None else goal.met
    return Bar(goal.name, goal.measured, f"{goal.measured:.2f} ×", goal.goal, good)


def _share_bar(goal: Goal) -> Bar:
    sign = "≥" if goal.at_least else "≤"
    text = f"{goal.measured:,.4g} {goal.unit} ({sign} {goal.goal:,g})"
    return Bar(goal.name, goal.share, text, None, goal.met)


def _peer_bars(report: Report) -> Iterator[Bar]:
    for row in report.peers:
        if row.floor.spread > MOST_SPREAD:
            continue
        for name, peer in {"ours": row.ours, **row.peers}.items():
            if not isinstance(peer, str):
                share = ratio(peer, row.floor)
                yield Bar(f"{name}, {row.length:,} tokens", share, f"{share:.1f} ×")


def by_floor(report: Report) -> list[Goal]:
    """What is measured by the floor, one id a step. Rows of a noisy floor are left out."""
    found = []
    for row in report.inprocess:
        if row.chunk == 1 and row.floor.spread <= MOST_SPREAD:
            goal = ONE_STEP_GOAL if row.length == 448 else None
            name = f"in process, {row.length:,} tokens"
            found.append(Goal(name, ratio(row.ours, row.floor), goal, "×"))
    for each in report.wire:
        if each.floor.spread > MOST_SPREAD:
            continue
        name = f"over TCP, {each.streams} stream{'s' * (each.streams > 1)}"
        found.append(Goal(name, ratio(each.ours, each.floor), WIRE_GOAL, "×"))
        goal = HOP_GOALS.get(each.streams)
        found.append(Goal(f"{name}, engine apart", ratio(each.hop, each.floor), goal, "×"))
    return found


def goals(report: Report) -> list[Goal]:
    """Everything that has a goal."""
    return [
        *(goal for goal in by_floor(report) if goal.goal is not None),
        *_of_tokens(report),
        *_of_bursts(report),
        *_of_fleets(report),
        *_beside(report),
    ]


def _of_tokens(report: Report) -> Iterator[Goal]:
    if (flatness := report.flatness()) is not None:
        yield Goal("a token, longest by shortest answer", flatness, LENGTH_GOAL, "×")
    if (chat := report.chat) is not None:
        yield Goal(
            "a token of a chat, by a response's", ratio(chat.chat, chat.response), CHAT_GOAL, "×"
        )


def _of_bursts(report: Report) -> Iterator[Goal]:
    for row in report.bursts:
        yield Goal(f"first deltas, p99 by p50, {row.name}", row.ratio, burst.GOAL, "×")
    if (gaps := report.burst_gaps) is not None:
        name = "running streams' gaps, p99 with bursts by alone"
        yield Goal(name, gaps.ratios[1], burst_gaps.GOAL, "×")


def _of_fleets(report: Report) -> Iterator[Goal]:
    for row in report.fleet:
        pace = f", {row.steps_a_second} steps/s" if row.steps_a_second else ""
        ids = f"{row.chunk} id{'s' * (row.chunk > 1)} a step{pace}"
        yield Goal(f"two front ends by one, {ids}", row.scale, fleet.SCALE_GOAL, "×", at_least=True)
        if row.chunk == 1:
            yield Goal(f"with an engine process, {ids}", 1 + row.hop, 1 + fleet.HOP_GOAL, "×")
    for each in report.embedded:
        for name, share in zip(embedded.SERVED, each.shares, strict=True):
            streams = f"{each.streams} stream{'s' * (each.streams > 1)}"
            yield Goal(
                f"demo's tokens/s, {name}, {streams}",
                100 * share,
                100 * embedded.GOAL,
                "%",
                at_least=True,
            )


def _beside(report: Report) -> Iterator[Goal]:
    if (first := report.first_delta) is not None:
        yield Goal("first delta, five tools", first.with_tools_us, FIVE_TOOLS_GOAL_US, "µs")
        yield Goal("first delta, fifty tools", first.with_many_tools_us, FIFTY_TOOLS_GOAL_US, "µs")
    if (scrapes := report.scrapes) is not None:
        yield Goal("a scrape", scrapes.one_us, SCRAPE_GOAL_US, "µs")
        yield Goal("64 streams beside scrapes", scrapes.share, SCRAPES_GOAL, "×")
    holds = [trap.longest_hold_us for trap in report.traps]
    if (turn := report.next_turn) is not None:
        yield Goal("next turn by a cold prompt", 100 * turn.share, 100 * NEXT_TURN_GOAL, "%")
        holds.append(turn.longest_hold_us)
    if holds:
        yield Goal("longest hold of the loop", max(holds) / 1000, HOLD_GOAL_US / 1000, "ms")
    for trap in report.traps:
        yield Goal(f"{trap.name} tokenised", trap.total_us / 1e6, TRAP_GOAL_US / 1e6, "s")
    if (stored := report.stored_mib) is not None:
        yield Goal("1,000 stored responses", stored, STORED_GOAL_MIB, "MiB")

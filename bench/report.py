"""Rows as a table for people and as JSON for machines, with the goals beside what was measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import orjson
from rich.table import Table

from bench import burst, burst_gaps, embedded, fleet, peers, prepare, stores
from bench.machine import MOST_SPREAD
from bench.timing import ratio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console

    from bench import chat, inprocess, segments, wire
    from bench.beside import FirstDelta, NextTurn, Scrapes, Trap
    from bench.timing import Repeats

ONE_STEP_GOAL = 2.0
LENGTH_GOAL = 1.2
CHAT_GOAL = 1.1
WIRE_GOAL = 1.5
"""At every number of streams; 1.6 at 64 is the minimum."""
HOP_GOALS = {1: 1.5, 64: 1.15, 256: 1.15}
"""With the engine in a process of its own: the web process alone, by the number of streams."""
FIVE_TOOLS_GOAL_US, FIFTY_TOOLS_GOAL_US = 500, 1000
SCRAPE_GOAL_US = 500
SCRAPES_GOAL = 1.05
NEXT_TURN_GOAL = 0.02
HOLD_GOAL_US = 5_000
TRAP_GOAL_US = 2_000_000
STORED_GOAL_MIB = 3.5


@dataclass(slots=True)
class Report:
    """What was measured so far."""

    machine: dict[str, object]
    load_before: float
    load_after: float = 0.0
    inprocess: list[inprocess.Row] = field(default_factory=list)
    chat: chat.Row | None = None
    wire: list[wire.Row] = field(default_factory=list)
    bursts: list[burst.Burst] = field(default_factory=list)
    burst_gaps: burst_gaps.Row | None = None
    first_delta: FirstDelta | None = None
    scrapes: Scrapes | None = None
    next_turn: NextTurn | None = None
    traps: list[Trap] = field(default_factory=list)
    stored_mib: float | None = None
    fleet: list[fleet.Row] = field(default_factory=list)
    embedded: list[embedded.Row] = field(default_factory=list)
    peers: list[peers.Row] = field(default_factory=list)
    stores: list[stores.Row] = field(default_factory=list)
    segments: segments.Figures | None = None
    prepared: dict[str, prepare.Figures] = field(default_factory=dict)

    @property
    def noisy(self) -> bool:
        floors = [row.floor for row in self.inprocess] + [row.floor for row in self.wire]
        floors += [row.floor for row in self.peers]
        return any(floor.spread > MOST_SPREAD for floor in floors)

    def flatness(self) -> float | None:
        """Per token at the greatest length, by that at the least, one id for each step."""
        rows = sorted((r for r in self.inprocess if r.chunk == 1), key=lambda r: r.length)
        return rows[-1].ours.median / rows[0].ours.median if len(rows) > 1 else None


def write(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(asdict(report), option=orjson.OPT_INDENT_2))


def show(report: Report, console: Console, *, anyway: bool) -> None:
    if report.inprocess:
        console.print(_inprocess(report, anyway))
    if report.wire:
        console.print(_wire(report, anyway))
    if report.bursts:
        console.print(burst.table(report.bursts))
    if report.burst_gaps:
        console.print(burst_gaps.table(report.burst_gaps))
    beside = _beside(report)
    if beside.row_count:
        console.print(beside)
    if report.fleet:
        console.print(*fleet.tables(report.fleet))
    if report.embedded:
        console.print(embedded.table(report.embedded))
    if report.peers:
        console.print(peers.table(report.peers, anyway=anyway))
    if report.stores:
        console.print(stores.table(report.stores))
    if report.segments:
        console.print("On the embedded engine, behind a prompt of 2,000 tokens")
        console.print("\n".join(f"  {line}" for line in report.segments.lines()))
    for name, figures in report.prepared.items():
        console.print("\n".join(prepare.lines(name, figures)))


def _inprocess(report: Report, anyway: bool) -> Table:
    table = Table(title="In process: CPU µs for each token, median of the repeats")
    for name in (
        "answer",
        "ids a step",
        "floor",
        "ours",
        "least",
        "engine alone",
        "× floor",
        "goal",
    ):
        table.add_column(name, justify="right")
    for row in report.inprocess:
        goal = ONE_STEP_GOAL if (row.length, row.chunk) == (448, 1) else None
        table.add_row(
            f"{row.length:,}",
            str(row.chunk),
            *_times(row.floor, row.ours),
            f"{row.engine.median:.2f}",
            *_ratio(row.floor, row.ours, goal, anyway),
        )
    return table


def _wire(report: Report, anyway: bool) -> Table:
    table = Table(title="Over TCP, saturated: the server's CPU µs for each token, median")
    for name in (
        *("streams", "ids a step", "floor", "ours", "least", "× floor", "goal"),
        *("engine apart", "× floor", "goal", "with its process"),
    ):
        table.add_column(name, justify="right")
    for row in report.wire:
        goal = HOP_GOALS.get(row.streams) if row.chunk == 1 else None
        table.add_row(
            str(row.streams),
            str(row.chunk),
            *_times(row.floor, row.ours),
            *_ratio(row.floor, row.ours, WIRE_GOAL if row.chunk == 1 else None, anyway),
            f"{row.hop.median:.2f}",
            *_ratio(row.floor, row.hop, goal, anyway),
            f"{row.hop_both.median:.2f}",
        )
    return table


def _times(floor: Repeats, ours: Repeats) -> tuple[str, str, str]:
    return f"{floor.median:.2f}", f"{ours.median:.2f}", f"{ours.least:.2f}"


def _ratio(floor: Repeats, ours: Repeats, goal: float | None, anyway: bool) -> tuple[str, str]:
    noisy = floor.spread > MOST_SPREAD
    if noisy and not anyway:
        return f"noisy (floor {floor.spread:.2f})", ""
    measured = ratio(ours, floor)
    text = f"{measured:.2f}" + (" (noisy)" if noisy else "")
    return text, "" if goal is None else _verdict(measured, goal)


def _beside(report: Report) -> Table:
    table = Table(title="Beside the tokens")
    for name in ("what", "measured", "goal"):
        table.add_column(name)
    for row in (*_first(report), *_scrapes(report), *_prompt(report), *_traps(report)):
        table.add_row(*row)
    if (stored := report.stored_mib) is not None:
        verdict = _verdict(stored, STORED_GOAL_MIB, f"{STORED_GOAL_MIB} MiB")
        table.add_row("memory of 1,000 stored responses", f"{stored:.1f} MiB", verdict)
    return table


def _first(report: Report) -> Iterator[tuple[str, ...]]:
    if (flatness := report.flatness()) is not None:
        verdict = _verdict(flatness, LENGTH_GOAL)
        yield "each token, longest by shortest answer", f"{flatness:.2f} ×", verdict
    if (chat := report.chat) is not None:
        share = ratio(chat.chat, chat.response)
        verdict = _verdict(share, CHAT_GOAL)
        yield "each token of a chat completion, by a response's", f"{share:.2f} ×", verdict
    if (first := report.first_delta) is not None:
        yield "request to first delta on SQLite, CPU", f"{first.ours_us:,.0f} µs"
        for tools, us, goal_us in (
            ("five", first.with_tools_us, FIVE_TOOLS_GOAL_US),
            ("fifty", first.with_many_tools_us, FIFTY_TOOLS_GOAL_US),
        ):
            yield f"… with {tools} tools", f"{us:,.0f} µs", _verdict(us, goal_us, f"{goal_us} µs")
        yield "… of the floor", f"{first.floor_us:,.0f} µs"


def _scrapes(report: Report) -> Iterator[tuple[str, ...]]:
    if (scrapes := report.scrapes) is not None:
        verdict = _verdict(scrapes.one_us, SCRAPE_GOAL_US, f"{SCRAPE_GOAL_US} µs")
        yield f"a scrape of {scrapes.lines} lines, CPU", f"{scrapes.one_us:,.0f} µs", verdict
        verdict = _verdict(scrapes.share, SCRAPES_GOAL)
        yield "… 64 streams beside twenty a second", f"{scrapes.share:.3f} ×", verdict


def _prompt(report: Report) -> Iterator[tuple[str, ...]]:
    if (turn := report.next_turn) is not None:
        yield f"cold prompt of {turn.tokens:,} tokens", f"{turn.cold_us / 1000:,.1f} ms"
        yield _held(turn.longest_hold_us)
        verdict = _verdict(turn.share, NEXT_TURN_GOAL, f"{NEXT_TURN_GOAL:.0%}")
        yield "… its next turn, by the cold one", f"{turn.share:.2%}", verdict


def _traps(report: Report) -> Iterator[tuple[str, ...]]:
    for trap in report.traps:
        verdict = _verdict(trap.total_us, TRAP_GOAL_US, f"{TRAP_GOAL_US / 1e6:.0f} s")
        yield f"{trap.name}: tokenised in", f"{trap.total_us / 1e6:.2f} s", verdict
        yield _held(trap.longest_hold_us)
        yield "… where no context bounds it", f"{trap.unbounded_hold_us / 1000:.1f} ms"


def _held(us: float) -> tuple[str, str, str]:
    verdict = _verdict(us, HOLD_GOAL_US, f"{HOLD_GOAL_US / 1000:.0f} ms")
    return "… longest hold of the loop", f"{us / 1000:.1f} ms", verdict


def _verdict(measured: float, goal: float, text: str = "") -> str:
    met = measured <= goal
    return f"[{'green' if met else 'red'}]{'≤' if met else 'missed:'} {text or goal}[/]"

"""The rows as tables of Markdown: all of them, and the few that the documentation shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.servers.measure import faults
from bench.servers.plays import PACED, REQUESTS, SATURATED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.servers.measure import Results, Row

BEGIN, END = "<!-- servers: written by python -m bench.servers --docs -->", "<!-- servers: end -->"
COLUMNS = (
    ("CPU µs", "cpu_us"),
    ("tokens or requests/s by the clock", "rate"),
    ("first delta p50, ms", "first_p50_ms"),
    ("p99", "first_p99_ms"),
    ("pace kept", "kept"),
)
SHORT = (
    ("token, 64 paced", PACED, 64, "cpu_us"),
    ("256", PACED, 256, "cpu_us"),
    ("1,000", PACED, 1000, "cpu_us"),
    ("token, 64 saturated", SATURATED, 64, "cpu_us"),
    ("request, 64", REQUESTS, 64, "cpu_us"),
    ("first delta p50, ms", REQUESTS, 64, "first_p50_ms"),
    ("p99", REQUESTS, 64, "first_p99_ms"),
    ("requests/s by the clock", REQUESTS, 64, "rate"),
)
"""Of each server one row."""


def markdown(results: Results) -> str:
    """Every row with its quartiles, and what kept a server from one."""
    names = [name for name, _ in COLUMNS]
    lines = [*_head(("load", "streams", "server", "runs", *names))]
    for row in results.rows:
        if row.runs:
            cells = (_cell(row, name) for _, name in COLUMNS)
            begin = (row.kind, f"{row.streams:,}", row.who, str(len(row.runs)))
            lines.append(_line((*begin, *cells)))
    return "\n".join([*lines, "", *(f"- {fault}" for fault in faults(results)), ""])


def short(results: Results) -> str:
    """One row a server, medians alone; `–` where it has none."""
    lines = [*_head(("CPU µs", *(name for name, *_ in SHORT)))]
    found = {(row.who, row.kind, row.streams): row for row in results.rows if row.runs}
    for who in dict.fromkeys(row.who for row in results.rows):
        own = (found.get((who, kind, streams)) for _, kind, streams, _ in SHORT)
        cells = (
            figure(row.quartiles(number)[1]) if row else "–"
            for row, (*_, number) in zip(own, SHORT, strict=True)
        )
        lines.append(_line((who, *cells)))
    lines += [f"| {who}: {why} |{' |' * len(SHORT)}" for who, why in results.absent.items()]
    return "\n".join(lines)


def write_into(page: Path, results: Results) -> None:
    """Replace the short table on a page, between its two marks."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{short(results)}\n{END}{after}")


def figure(value: float) -> str:
    """A number with three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _cell(row: Row, name: str) -> str:
    first, middle, third = map(figure, row.quartiles(name))
    return middle if first == third else f"{middle} ({first}–{third})"


def _head(names: tuple[str, ...]) -> Iterator[str]:
    yield _line(names)
    yield "|" + "---|" * len(names)


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"

"""What clients noticed, as a table with its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from scripts.rollout.load import Tally

COUNTED = ("requests", "refused, tried again")
"""Totals, and expected refusals: a server that drains sends clients to the other."""
OF_A_KILL = (
    *("broke, tried again", "5xx of the proxy", "streams cut", "still locked"),
    "turns repeated",
)
"""What a server that is killed does to those who had a connection to it, and nothing else may. A
conversation in which it was writing is locked until its lease has run out, after all retries."""
NEVER = ("connection errors", "requests failed", "plain lost", "background lost", "tool_loop lost")
"""A program's errors after the client's retries, and responses that came to a wrong end."""
COLUMNS = (*COUNTED, *OF_A_KILL, *NEVER)


def breaches(tally: Tally, kills: Collection[str]) -> list[str]:
    """Each bound that was passed; `kills` are the phases in which a server was killed."""
    found = []
    for phase, counts in tally.counts.items():
        bound = NEVER if phase in kills else (*OF_A_KILL, *NEVER)
        found += [f"{phase}: {counts[what]} × {what}" for what in bound if counts[what]]
    return found


def show(title: str, tally: Tally, more: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    """Print the table: a row for each phase, with `more` columns that `rows` fill."""
    table = Table(title=title)
    table.add_column("phase")
    for column in (*COLUMNS, *more):
        table.add_column(column, justify="right")
    for phase, counts in tally.counts.items():
        cells = [str(counts[column]) for column in COLUMNS]
        table.add_row(phase, *cells, *rows.get(phase, [""] * len(more)))
    Console(width=150).print(table)

"""`make views`: one script through every API, printed as a table; 1 when two views differ."""

from __future__ import annotations

import asyncio
import hashlib
import sys

from rich.console import Console
from rich.table import Table

from tests.support.views import VIEWS, Turn, through


def main() -> int:
    turns = {name: asyncio.run(through(view)) for name, view in VIEWS.items()}
    table = Table("view", "turn", "ids in the engine", "thought", "text", "calls", "usage")
    for name, seen in turns.items():
        for number, turn in enumerate(seen, 1):
            table.add_row(name if number == 1 else "", str(number), *cells(turn))
    Console(width=160).print(table)
    same = len({tuple(seen) for seen in turns.values()}) == 1
    print("All views are the same." if same else "The views differ.")
    print("Usage: tokens of the prompt, of those from a cache, written, and of them thought.")
    return 0 if same else 1


def cells(turn: Turn) -> tuple[str, ...]:
    answer = turn.said
    digests = (
        f"{len(ids)}: {hashlib.sha256(repr(ids).encode()).hexdigest()[:8]}" for ids in turn.ids
    )
    calls = ", ".join(f"{name} {arguments}" for name, arguments in answer.calls)
    used = " ".join(map(str, answer.usage))
    return ", ".join(digests), answer.thought, answer.text, calls, used


if __name__ == "__main__":
    sys.exit(main())

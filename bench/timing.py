"""CPU time, and what repeats of it say. Never wall time: the machine is shared."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Repeats:
    """One contender's times in one row, in µs for each token, in the order of measuring."""

    us: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.us)

    @property
    def least(self) -> float:
        return min(self.us)

    @property
    def spread(self) -> float:
        return max(self.us) / min(self.us)


def ratio(ours: Repeats, floor: Repeats) -> float:
    """The median of the ratios of neighbours: each repeat against the floor just before it."""
    return statistics.median(a / b for a, b in zip(ours.us, floor.us, strict=True))


cpu_ns = time.process_time_ns
"""Of this process, all its threads."""


def cpu_ns_of(pid: int, *, alone: bool = False) -> int:
    """Of another process and its children, or of it alone: nanoseconds that its threads have
    run."""
    total = 0
    for tasks in _tree(pid)[: 1 if alone else None]:
        for stat in tasks.glob("*/schedstat"):
            try:
                total += int(stat.read_text().split(" ", 1)[0])
            except OSError:  # the thread ended between the two
                continue
    return total


def children_of(pid: int) -> list[int]:
    """The process ids of its children."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _tree(pid: int) -> list[Path]:
    found = [Path(f"/proc/{pid}/task")]
    for child in children_of(pid):
        found += _tree(child)
    return found

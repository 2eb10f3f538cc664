"""CPU time, and what repeats of it say. Never wall time: the machine is shared."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Repeats:
    """One contender's times in one row, in µs for each token, in the order they were taken."""

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


def _tree(pid: int) -> list[Path]:
    found = [Path(f"/proc/{pid}/task")]
    for task in list(found[0].glob("*/children")):
        for child in task.read_text().split():
            found += _tree(int(child))
    return found

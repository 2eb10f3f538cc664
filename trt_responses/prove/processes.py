"""The processes below a server: which there are, their memory and their CPU time. Linux only."""

from __future__ import annotations

import os
from pathlib import Path

PAGE, TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def below(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    for file in Path("/proc").glob(f"{pid}/task/*/children"):
        for child in map(int, _text(file).split()):
            found += [child, *below(child)]
    return found


def resident_mib(pid: int) -> float:
    """The memory of a process; 0 if it has ended."""
    fields = _text(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * PAGE / 2**20 if fields else 0.0


def cpu_s(pid: int) -> float:
    """The CPU time of a process, without its children."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / TICKS if fields else 0.0


def is_alive(pid: int) -> bool:
    """Whether a process runs or is stopped."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return bool(fields) and fields[0] not in "ZX"


def largest(pids: list[int]) -> int | None:
    """The process with the most memory: the one that has the model."""
    return max(pids, key=resident_mib, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""

"""The memory that this process can use: the machine's, or the least that a control group allows.
Reads Linux's files, of both versions of control groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GROUPS = "sys/fs/cgroup"


class Memory(NamedTuple):
    """The memory of this process."""

    total_bytes: int
    """The most bytes that this process can use."""
    free_bytes: int
    """The bytes that it can use now without swapping."""


class Version(NamedTuple):
    """The files with the limits of one version of control groups."""

    mounts: tuple[str, ...]
    limit: str
    used: str
    reclaimable: str
    """The row of `memory.stat` with file pages that the kernel drops before it refuses memory."""


VERSION_1 = Version(
    (f"{GROUPS}/memory",),
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
)
VERSION_2 = Version((GROUPS, f"{GROUPS}/unified"), "memory.max", "memory.current", "inactive_file")


def memory(root: Path = Path("/")) -> Memory:
    """The machine's memory, cut to the limits of this process's group and of all groups above."""
    rows = _rows(root / "proc/meminfo")
    total, free = (rows.get(name, 0) * 1024 for name in ("MemTotal", "MemAvailable"))
    for limit, used in _limits(root):
        total, free = min(total, limit), min(free, max(limit - used, 0))
    return Memory(total, free)


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """The limit and the use of every group that has a limit."""
    for line in text_of(root / "proc/self/cgroup").splitlines() or ["0::/", "1:memory:/"]:
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        version = VERSION_1 if controllers else VERSION_2
        for mount in version.mounts:
            for folder in _folders(root / mount, group):
                limit = text_of(folder / version.limit).strip()
                if limit.isdecimal():
                    used = int(text_of(folder / version.used).strip() or 0)
                    kept = _rows(folder / "memory.stat").get(version.reclaimable, 0)
                    yield int(limit), max(used - kept, 0)


def _folders(mount: Path, group: str) -> list[Path]:
    """The group's folder and those above it, up to the mount.
    A container may see its name on the host, which is no folder here; then the mount has the
    limits.
    """
    parts = [part for part in group.split("/") if part and part != ".."]
    return [mount.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]


def _rows(path: Path) -> dict[str, int]:
    """The numbers of a file whose lines are `name value` or `name: value kB`."""
    rows = (line.split() for line in text_of(path).splitlines())
    return {row[0].rstrip(":"): int(row[1]) for row in rows if row[1:] and row[1].isdecimal()}


def text_of(path: Path) -> str:
    """The text of a file of the kernel; nothing if it cannot be read."""
    try:
        return path.read_text("ascii", errors="replace")
    except OSError:
        return ""

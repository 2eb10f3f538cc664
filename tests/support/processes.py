"""The processes that another process started, as Linux tells them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether it runs or is stopped. A zombie is not alive."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def children_of(pid: int) -> list[int]:
    """Its own children; a thread or a process that ends while they are counted has none."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def running(pid: int, program: str) -> list[int]:
    """Its own children that run a program of Python's, such as `package.module`."""
    return [child for child in children_of(pid) if program in _command(child)]


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:  # it has ended
        return []

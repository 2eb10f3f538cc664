"""A file that keeps some of the disk free, so that a full disk can still be made emptier.

SQLite needs room to delete: its log grows first. Knows a path and a size; knows no database.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SIZE_BYTES = 8 * 1024 * 1024
"""Bytes of the reserve: twice what SQLite's log may grow to, since the log must fit into the
history before the reserve is taken back."""
SHARE = 4
"""The share of a small disk that is taken at most."""


class Reserve:
    """The reserve of one history."""

    def __init__(self, history: Path) -> None:
        self._path = history.with_name(f"{history.name}-reserve")

    @property
    def size_bytes(self) -> int:
        """The bytes that it takes on this disk."""
        try:
            disk = os.statvfs(self._path.parent)
        except (OSError, AttributeError):
            return SIZE_BYTES
        return min(SIZE_BYTES, disk.f_blocks * disk.f_frsize // SHARE)

    @property
    def log_bytes(self) -> int:
        """The bytes to which SQLite's log may grow."""
        return self.size_bytes // 2

    def fill(self) -> None:
        """Take the room, unless it is taken, or there is none."""
        if self._path.exists():
            return
        try:
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, self.size_bytes)
                else:
                    file.write(bytes(self.size_bytes))
        except OSError:
            self.release()

    def release(self) -> None:
        """Give the room to whoever writes next."""
        with suppress(OSError):
            self._path.unlink()

"""A reserve file that keeps disk space for deletes on a full disk.

SQLite needs space to delete, because its log grows first. A path and a size only: no database.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

SIZE_BYTES = 8 * 1024 * 1024
"""Size of the reserve: twice the log's limit, since the log must be checkpointed before the reserve
is filled again."""
SHARE = 4
"""The reserve is at most 1/SHARE of a small disk."""


class Reserve:
    """The reserve of one store."""

    def __init__(self, history: Path) -> None:
        self._path = history.with_name(f"{history.name}-reserve")

    @property
    def size_bytes(self) -> int:
        """The reserve's size on this disk."""
        try:
            disk = os.statvfs(self._path.parent)
        except (OSError, AttributeError):
            return SIZE_BYTES
        return min(SIZE_BYTES, disk.f_blocks * disk.f_frsize // SHARE)

    @property
    def log_bytes(self) -> int:
        """The size limit of SQLite's log."""
        return self.size_bytes // 2

    def fill(self) -> None:
        """Create the reserve, unless it exists or the disk is full."""
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
        """Delete the reserve, so that the next write has space."""
        with suppress(OSError):
            self._path.unlink()

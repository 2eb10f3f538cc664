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
"""The log, which SQLite lets grow to 4 MiB, must fit into the history before it is given back."""


class Reserve:
    def __init__(self, history: Path, size_bytes: int = SIZE_BYTES) -> None:
        self._path = history.with_name(f"{history.name}-reserve")
        self._size_bytes = size_bytes

    def fill(self) -> None:
        """Take the room, unless it is taken, or there is none."""
        if self._path.exists():
            return
        try:
            with self._path.open("wb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, self._size_bytes)
                else:
                    file.write(bytes(self._size_bytes))
        except OSError:
            self.release()

    def release(self) -> None:
        """Give the room to whoever writes next."""
        with suppress(OSError):
            self._path.unlink()

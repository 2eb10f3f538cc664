"""Files that are replaced whole, and folders that can be written."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_whole(path: Path, data: str | bytes | memoryview, *, shared: bool = False) -> None:
    """Replace a file so that a crash or a full disk leaves the old or the new one, on the disk.
    `shared`: other processes may write it at the same time."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part" if shared else f"{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def unwritable(folder: Path) -> str | None:
    """Why no file can be made in a folder, which is made where it is missing; None if one can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:  # no name, for others may look too
            file.write(b" ")
    except OSError as error:
        return error.strerror or str(error)
    return None

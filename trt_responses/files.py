"""Files that are replaced whole, and what other users cannot read."""

from __future__ import annotations

import errno
import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

OWN = ("audit.jsonl", "containers", "files", "history.db", "keys", "seal.key", "vocabulary")
"""The beginnings of names in `DATA_DIR`."""


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


def reason(error: OSError) -> str:
    """Why a file could not be read or written. numpy gives no reason for a disk that is full."""
    full = error.errno is None and " requested and " in str(error)
    return os.strerror(errno.ENOSPC) if full else error.strerror or str(error)


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone."""
    if not folder.exists():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def close_to_others(path: Path, *, keep_group: bool = False) -> None:
    """Remove other users' access to a file or folder, if it exists and this user owns it. A folder
    that all users share, such as `/tmp`, and a device, such as `/dev/null`, stay as they are."""
    with suppress(OSError):
        found = path.stat()
        open_bits = found.st_mode & (0o007 if keep_group else 0o077)
        stays = found.st_mode & (stat.S_ISVTX | stat.S_IFCHR)  # block devices have its bit too
        if open_bits and found.st_uid == os.geteuid() and not stays:
            mode = stat.S_IMODE(found.st_mode)
            path.chmod(mode & ~open_bits)
            logger.warning("closed %s to other users: old_mode=%04o", path, mode)


def close_folder_to_others(folder: Path) -> None:
    """The same for what servers keep in a folder, and for the folder if nothing else is in it:
    somebody may name `/etc`, or a home, by mistake."""
    with suppress(OSError):
        found = list(folder.iterdir())
        own = [path for path in found if path.name.startswith(OWN) and not path.is_symlink()]
        for path in (folder, *own) if all(path.name.startswith(OWN) for path in found) else own:
            close_to_others(path)

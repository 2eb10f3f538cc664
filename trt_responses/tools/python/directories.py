"""Directories of containers: made for one server, measured, and removed, whatever code left there.

Each server has a directory of its own under a common one, and holds a lock in it: what no lock
holds was left by a server that died, and is removed at the next start.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.files import close_to_others, make_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

LOCK = "lock"
BLOCK = 512
"""Bytes of a block, as `stat` counts."""


class Usage(NamedTuple):
    """The bytes and the files of a directory, or their bounds."""

    size_bytes: int
    entries: int


class ServerDirectory:
    """This server's, locked for as long as it runs."""

    def __init__(self, parent: Path) -> None:
        make_private(parent)
        close_to_others(parent)
        sweep(parent)
        self.path = (parent / secrets.token_hex(8)).resolve()
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        remove_tree(self.path)
        os.close(self._lock)


def sweep(parent: Path) -> None:
    """Remove what servers have left that are no more."""
    for left in parent.iterdir():
        try:
            lock = os.open(left / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # it is being made, or was never finished
            with suppress(OSError):
                left.rmdir()
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(left)
        except BlockingIOError:
            pass  # its server lives
        finally:
            os.close(lock)


def usage(directory: Path, most: Usage) -> Usage:
    """How much is in a directory; no more is looked at than is needed to see that it is too much.
    What vanishes meanwhile is passed over. A directory that cannot be read counts as too much."""
    size = entries = 0
    try:
        for entry in _entries(directory):
            entries += 1
            with suppress(FileNotFoundError):
                size += entry.stat(follow_symlinks=False).st_blocks * BLOCK
            if size > most.size_bytes or entries > most.entries:
                break
    except OSError:
        return Usage(most.size_bytes + 1, entries)
    return Usage(size, entries)


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    left = [str(directory)]
    while left:
        try:
            found = os.scandir(left.pop())
        except FileNotFoundError:
            continue
        with found:
            for entry in found:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)


def unlinked_bytes(pids: Iterable[int], directory: Path, file_bytes: int) -> int:
    """What processes hold of a directory's files that have no name any more, and so stand in no
    directory. One that is mapped and not open counts as the largest that there may be."""
    sizes: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    found = os.stat(f"/proc/{pid}/fd/{descriptor}")
                    if stat.S_ISREG(found.st_mode) and not found.st_nlink:
                        sizes[found.st_ino] = found.st_blocks * BLOCK
            with open(f"/proc/{pid}/maps", errors="replace") as maps:
                for line in maps:
                    if line.endswith(" (deleted)\n") and str(directory) in line:
                        sizes.setdefault(int(line.split()[4]), file_bytes)
    return sum(sizes.values())


def remove_tree(top: Path) -> None:
    """Remove a directory and all in it. Code may have nested directories deeper than any path is
    long, and made them unreadable: each is moved to the top before it is emptied."""
    with suppress(FileNotFoundError):
        left = [str(top)]
        emptied = []
        while left:
            directory = left.pop()
            emptied.append(directory)
            os.chmod(directory, stat.S_IRWXU)
            with os.scandir(directory) as found:
                entries = list(found)
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    moved = str(top / f".{secrets.token_hex(16)}")
                    os.chmod(entry.path, stat.S_IRWXU, follow_symlinks=True)
                    os.rename(entry.path, moved)
                    left.append(moved)
                else:
                    os.unlink(entry.path)
        for directory in reversed(emptied):
            os.rmdir(directory)

"""Directories of containers: created per server, measured, and removed with any content.

Each server has a directory under a common one, with a lock. A directory without a held lock is from
a dead server, and the next start removes it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trt_responses.files import close_to_others, make_private

LOCK = "lock"
BLOCK = 512
"""Bytes of a block in `stat`."""


class Usage(NamedTuple):
    """The bytes and entries of a directory, or their limits."""

    size_bytes: int
    entries: int


class ServerDirectory:
    """This server's directory, locked while it runs."""

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
    """Remove directories of dead servers."""
    for left in parent.iterdir():
        try:
            lock = os.open(left / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # being created, or never completed
            with suppress(OSError):
                left.rmdir()
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(left)
        except BlockingIOError:
            pass  # its server is alive
        finally:
            os.close(lock)


def usage(directory: Path, most: Usage) -> Usage:
    """The usage of a directory, counted up to the limit. Entries that disappear meanwhile are
    ignored. An unreadable directory counts as over the limit."""
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
            entries = os.scandir(left.pop())
        except FileNotFoundError:
            continue
        with entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)


def unlinked_bytes(pids: Iterable[int], directory: Path, file_bytes: int) -> int:
    """The bytes of deleted files of a directory that processes still hold. A file that is mapped
    but not open counts as `file_bytes`."""
    sizes: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    facts = os.stat(f"/proc/{pid}/fd/{descriptor}")
                    if stat.S_ISREG(facts.st_mode) and not facts.st_nlink:
                        sizes[facts.st_ino] = facts.st_blocks * BLOCK
            with open(f"/proc/{pid}/maps", errors="replace") as maps:
                for line in maps:
                    if line.endswith(" (deleted)\n") and str(directory) in line:
                        sizes.setdefault(int(line.split()[4]), file_bytes)
    return sum(sizes.values())


def remove_tree(top: Path) -> None:
    """Remove a directory tree. Code may have nested directories deeper than any path allows and
    made them unreadable, so each is moved to the top before it is emptied."""
    with suppress(FileNotFoundError):
        left = [str(top)]
        emptied = []
        while left:
            directory = left.pop()
            emptied.append(directory)
            os.chmod(directory, stat.S_IRWXU)
            with os.scandir(directory) as scan:
                entries = list(scan)
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

"""Files of a container: an owner's access while code may run there.

Code owns the directory: any name may become a link, a pipe or a directory at any moment. So paths
are opened one step at a time, each relative to the one before, without following links. No
container and no HTTP here.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

MOST_DEEP = 32
"""Maximum depth of listed files."""
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FoundFile(NamedTuple):
    """A file in a container."""

    path: str
    """Relative to the directory."""
    size_bytes: int
    modified_at: int
    changed_ns: int = 0
    """Time of its last change, which code cannot set."""


def list_files(top: Path, most: int) -> list[FoundFile]:
    """The regular files below a directory, by path; stops after `most` entries."""
    found: list[FoundFile] = []
    seen = 0
    with suppress(FileNotFoundError):
        for root, directories, names, here in os.fwalk(str(top), follow_symlinks=False):
            below = os.path.relpath(root, top)
            if below.count(os.sep) + 2 > MOST_DEEP:
                directories.clear()
            for name in names:
                with suppress(OSError):
                    facts = os.stat(name, dir_fd=here, follow_symlinks=False)
                    if stat.S_ISREG(facts.st_mode):
                        path = name if below == "." else f"{below}{os.sep}{name}"
                        about = facts.st_size, int(facts.st_mtime), facts.st_ctime_ns
                        found.append(FoundFile(path, *about))
            seen += len(names) + len(directories)
            if seen > most:
                break
    return sorted(found)


def open_file(top: Path, path: str) -> int:
    """A descriptor of a regular file for reading. Raises `FileNotFoundError` for anything else."""
    with _directory_of(top, path) as (here, name):
        try:
            opened = os.open(name, FILE, dir_fd=here)
        except OSError:
            raise FileNotFoundError(path) from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise FileNotFoundError(path)
    return opened


def remove_file(top: Path, path: str) -> None:
    """Delete a file. Raises `FileNotFoundError` if there is none."""
    with _directory_of(top, path) as (here, name):
        try:
            os.unlink(name, dir_fd=here)
        except OSError:
            raise FileNotFoundError(path) from None


def add_file(top: Path, name: str, data: bytes | Iterable[bytes]) -> FoundFile:
    """Write a file atomically, replacing one of the same name. Raises an `OSError` if that is a
    directory, or a `ValueError` for an invalid name."""
    if os.sep in name or "\0" in name or name in ("", ".", ".."):
        raise ValueError(name)
    with _directory_of(top, name) as (here, _):
        temporary = f".{secrets.token_hex(16)}"
        descriptor = os.open(temporary, NEW, 0o600, dir_fd=here)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines((data,) if isinstance(data, bytes) else data)
            os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=here)
            raise
        facts = os.stat(name, dir_fd=here, follow_symlinks=False)
    return FoundFile(name, facts.st_size, int(facts.st_mtime))


@contextmanager
def _directory_of(top: Path, path: str) -> Iterator[tuple[int, str]]:
    """The directory of a file, and the file's name there."""
    *steps, name = path.split(os.sep)
    if {"", ".", ".."} & {*steps, name}:
        raise FileNotFoundError(path)
    here = _open_entry(str(top), None)
    try:
        for step in steps:
            below = _open_entry(step, here)
            os.close(here)
            here = below
        yield here, name
    finally:
        os.close(here)


def _open_entry(name: str, within: int | None) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=within)
    except OSError:
        raise FileNotFoundError(name) from None

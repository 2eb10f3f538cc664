"""Turns a GGUF file into an engine's file in its place, without a copy.

Room for a longer head is inserted before the weights, which ext4 and XFS do at once. Until the
engine has its card, the old head is kept beside the file, so that a killed move can be undone.
    <file>.moving    the old head behind one line of JSON; locked while a process moves the file
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import FileIO
from pathlib import Path

from trt_responses.files import reason
from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import MODEL, decoded, nearest, sync_folder
from trt_responses.prepare.llamacpp.region import Region, filled, shares_blocks, write_under
from trt_responses.prepare.shelf.card import CARD

COLLAPSE, INSERT = 0x08, 0x20
"""Linux's modes of `fallocate`."""
MOVING = ".moving"
HEAD_BYTES = 16 << 20
"""More than a head takes."""
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Moving:
    """The file before the move, and where its content goes."""

    target: str
    size_bytes: int
    mtime_ns: int
    start: int
    """The length of the old head."""
    inserted: int


@dataclass(frozen=True, slots=True)
class Copy:
    """How the weights of a file come under a new head."""

    shares: bool
    """Whether the new file needs no space for the weights."""
    may_move: bool

    def disk_bytes(self, weights_bytes: float) -> float:
        """The disk space that the new file takes."""
        return HEAD_BYTES + (0 if self.shares else weights_bytes)

    def write(
        self, head: bytes, region: Region, target: Path, advance: Callable[[int], object]
    ) -> None:
        """Write the target, or turn the file into it."""
        if self.may_move:
            move(head, region, target)
            advance(region.size_bytes)
        else:
            write_under(head, region, target, advance)


PLAIN_COPY = Copy(shares=False, may_move=False)


def copy_of(region: Region | None, engines_dir: Path, *, move: bool = False) -> Copy:
    """How an engine's file gets these weights. `move`: the file itself may become the engine's."""
    if region is None:
        return PLAIN_COPY
    shares = shares_blocks(region.path, engines_dir)
    may_move = move and not shares and movable(region.path, engines_dir)
    return Copy(shares or may_move, may_move)


@contextmanager
def moving(path: Path) -> Iterator[None]:
    """Hold the file against other moves: first undo one that was killed; at the end undo this one,
    or remove the file if its engine has a card."""
    path = path.resolve()
    name = path.with_name(path.name + MOVING)
    try:
        with name.open("a+b", buffering=0) as record:
            try:
                fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PrepareError(
                    f"{path}: another process moves this file; wait for it."
                ) from None
            try:
                _undo(path, record)
                yield
            finally:
                _undo(path, record)
                name.unlink(missing_ok=True)
    except OSError as error:
        raise PrepareError(f"{path} cannot be moved ({reason(error)}).") from None


def undo(path: Path) -> None:
    """Undo a move of this file that was killed. Raises if another process moves it now."""
    whole = path.resolve()
    if (whole.parent / (whole.name + MOVING)).exists():
        with moving(path):
            pass


def movable(path: Path, directory: Path) -> bool:
    """Whether the file can become an engine's file in this directory without a copy: one file
    system that inserts ranges, one name of the file, and no program that has it open."""
    status = path.stat()
    directory = nearest(directory)
    one = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    if not one or status.st_dev != directory.stat().st_dev or not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        with path.open("r+b") as file:  # a lease is refused if another program has the file open
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        with tempfile.TemporaryFile(dir=directory) as trial:
            block = os.fstatvfs(trial.fileno()).f_bsize
            trial.write(bytes(2 * block))
            trial.flush()
            _allocate(trial.fileno(), INSERT, block)
    except OSError:
        return False
    return True


def move(head: bytes, region: Region, target: Path) -> None:
    """Give the file the new head, and the target's name too. Runs inside `moving`."""
    path = region.path.resolve()
    block, status = os.statvfs(path).f_bsize, path.stat()
    whole = filled(head, region.start, block)
    added = len(whole) - region.start
    facts = Moving(str(target), status.st_size, status.st_mtime_ns, region.start, added)
    with path.open("r+b", buffering=0) as file:
        with path.with_name(path.name + MOVING).open("wb") as record:
            record.write(json.dumps(asdict(facts)).encode() + b"\n" + file.read(region.start))
            record.flush()
            os.fsync(record.fileno())
        sync_folder(path.parent)
        if added:
            _allocate(file.fileno(), INSERT, added)
        _write(file.fileno(), whole)
    target.unlink(missing_ok=True)
    target.hardlink_to(path)


def _undo(path: Path, record: FileIO) -> None:
    """Give a half-moved file its old head back. The record was synced before the file changed, so a
    file with a torn record is whole."""
    record.seek(0)
    text, old = record.readline(), record.read()
    if not text.endswith(b"\n"):
        return
    facts = decoded(Moving, text, MOVING)
    target = Path(facts.target)
    if (target.parent / CARD).exists():
        path.unlink(missing_ok=True)
    elif len(old) == facts.start and path.exists():
        for name in (target, target.with_name(MODEL)):
            if name.exists() and name.samefile(path):
                name.unlink()
        _restore(path, old, facts)
    record.truncate(0)


def _restore(path: Path, old: bytes, facts: Moving) -> None:
    with path.open("r+b", buffering=0) as file:
        if facts.inserted and path.stat().st_size == facts.size_bytes + facts.inserted:
            _allocate(file.fileno(), COLLAPSE, facts.inserted)
        _write(file.fileno(), old)
    os.utime(path, ns=(facts.mtime_ns, facts.mtime_ns))


def _write(file: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:], done)
    os.fsync(file)


def _allocate(file: int, mode: int, size: int) -> None:
    if _libc.fallocate(file, mode, ctypes.c_int64(0), ctypes.c_int64(size)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

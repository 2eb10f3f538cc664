"""The locks of an engine's directory; the kernel ends each with its process.

    lock            who builds, removes or prunes: held as long as that takes
    changes.lock    who writes the journal or the pointer: held for milliseconds
    a version's directory, shared by all that serve it

So a build of an hour keeps nobody from a promotion or a rollback. Knows files; knows no version.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trt_responses.prepare.faults import PrepareError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK, CHANGES = "lock", "changes.lock"
CHANGES_S, LOOK_S = 5.0, 0.02
"""The longest wait for who changes the versions of an engine, and the time between two looks."""

_mine = threading.local()


@contextmanager
def locked(home: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock an engine, so that one process alone builds and removes its versions."""
    with _locked_file(home, LOCK, None if wait else 0.0, "builds or removes a version of it"):
        yield


@contextmanager
def changing(home: Path) -> Iterator[None]:
    """Lock the journal and the pointer. Whoever has the lock may take it again."""
    homes: set[Path] = _mine.__dict__.setdefault("homes", set())
    if home in homes:
        yield
        return
    with _locked_file(home, CHANGES, CHANGES_S, "changes which version is served"):
        homes.add(home)
        try:
            yield
        finally:
            homes.remove(home)


@contextmanager
def _locked_file(home: Path, name: str, patience_s: float | None, what: str) -> Iterator[None]:
    """A lock on a file, which holds the number of the process that has it. With no patience given
    it is waited for without end."""
    try:
        file = (home / name).open("a+")
    except OSError as error:
        raise PrepareError(f"{home} cannot be written ({error.strerror}).") from None
    with file:
        if patience_s is None:
            fcntl.flock(file, fcntl.LOCK_EX)
        elif not _taken(file.fileno(), patience_s):
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            raise PrepareError(
                f"engine {home.name!r}: another process ({holder}) {what}; wait until it is done."
            )
        if not _is_same_file(file.fileno(), home / name):
            raise PrepareError(f"engine {home.name!r} was removed meanwhile; start again.")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _taken(descriptor: int, patience_s: float) -> bool:
    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(LOOK_S)
        else:
            return True


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep this version from being removed while the context lasts: it is being served."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise PrepareError(f"{directory} cannot be read ({error.strerror}).") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_held(directory: Path) -> bool:
    """Whether some process serves this version."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False

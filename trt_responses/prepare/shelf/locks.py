"""The locks of an engine's directory. The kernel releases each with its process.
    lock            for builds, removals and prunes: held for as long as they take
    changes.lock    for writes of the journal and the pointer: held for milliseconds
    a version's directory, a shared lock of every server that serves it
So a build of an hour never blocks a promotion or a rollback. Locks files only.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trt_responses.prepare.faults import PrepareError

LOCK, CHANGES = "lock", "changes.lock"
CHANGES_S, LOOK_S = 5.0, 0.02
"""The longest wait for another change of an engine's versions, and the time between two tries."""

_mine = threading.local()


@contextmanager
def locked(home: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock an engine, so that only one process builds and removes its versions."""
    with _locked_file(home, LOCK, None if wait else 0.0, "builds or removes a version of it"):
        yield


@contextmanager
def changing(home: Path) -> Iterator[None]:
    """Lock the journal and the pointer. The lock is reentrant within a thread."""
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
    """Lock a file, and write the process id into it. Without `patience_s` it waits without end."""
    try:
        file = (home / name).open("a+")
    except OSError as error:
        raise PrepareError(f"{home} cannot be written ({error.strerror}).") from None
    with file:
        if patience_s is None:
            fcntl.flock(file, fcntl.LOCK_EX)
        elif not _acquire(file.fileno(), patience_s):
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            raise PrepareError(
                f"engine {home.name!r}: another process ({holder}) {what}; wait until it is done."
            )
        if not _is_same_file(file.fileno(), home / name):
            raise PrepareError(
                f"engine {home.name!r} was removed meanwhile; run the command again."
            )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _acquire(descriptor: int, patience_s: float) -> bool:
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
def mark_served(directory: Path) -> Iterator[None]:
    """Mark this version as served, so that no process removes it within the context."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise PrepareError(f"{directory} cannot be read ({error.strerror}).") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_served(directory: Path) -> bool:
    """Whether a process serves this version."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False

"""The file of keys on disk: read, watched, and changed by one writer at a time.

A change is seen by what `stat` says of the file that the path leads to, so that a symlink which is
swapped, as Kubernetes swaps a Secret's, is a change too. Knows keys; knows no HTTP.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from pathlib import Path

from trt_responses.features.limits.audit import Audit
from trt_responses.features.limits.keys import Key, KeyFault, KeyRing, read_keys, write_keys
from trt_responses.files import close_to_others, make_private
from trt_responses.tasks import beside

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks at the file: a removed key is refused within twice of it."""


class WatchedKeys:
    """Keeps a `KeyRing` as the file says. A file that cannot be used changes nothing."""

    def __init__(
        self,
        path: Path,
        ring: KeyRing,
        audit: Audit,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._path = path
        self._ring = ring
        self._audit = audit
        self._sleep = sleep
        self._seen: object = None
        self._keys: tuple[Key, ...] = ()
        self.fault: str | None = None
        """The reason why the file as it is now cannot be used; None when it can."""

    def __len__(self) -> int:
        return len(self._keys)

    def load(self) -> None:
        """Read the file. Raises a `KeyFault` when it cannot be used."""
        read_file(self._path)  # a path that names another file by mistake stays as it is
        close_to_others(self._path, keep_group=True)
        self._seen, keys = read_file(self._path)
        self._ring.hold(keys)
        before, after = set(self._keys), set(keys)
        self._keys = keys
        added, removed = _names(after - before), _names(before - after)
        logger.info(
            "loaded key file %s: keys=%d added=%s removed=%s", self._path, len(keys), added, removed
        )
        self._tell("keys.loaded", added=added, removed=removed)

    def look(self) -> None:
        """Read the file again if it has changed since the last look."""
        close_to_others(self._path, keep_group=True)  # before the stamp, which it changes
        if (stamp := _stamp(self._path)) == self._seen:
            return
        try:
            self.load()
            self.fault = None
        except KeyFault as fault:
            self._seen, self.fault = stamp, str(fault)
            logger.error("rejected key file %s, keeping the previous keys: %s", self._path, fault)
            self._tell("keys.refused", reason=str(fault))

    def life(self) -> AbstractAsyncContextManager[object]:
        """Look at the file now and then, for as long as the context lasts."""
        return beside(self._watch())

    async def _watch(self) -> None:
        while True:
            await self._sleep(LOOK_S)
            try:
                await asyncio.to_thread(self.look)
            except Exception:  # whatever it was, the next look may be better
                logger.exception("failed to check the key file for changes")

    def _tell(self, act: str, **facts: object) -> None:
        try:
            self._audit.tell(act, by="server", file=str(self._path), **facts)
        except OSError as error:
            logger.error("cannot write audit log %s: %s", self._audit.path, error.strerror)


def read_file(path: Path) -> tuple[object, tuple[Key, ...]]:
    """The file's `stat`, by which changes are noticed, and its keys."""
    try:
        if path.exists() and not path.is_file():  # a pipe would hold its reader for ever
            raise KeyFault("is not a file")
        with path.open("rb") as file:
            return _stamp_of(os.fstat(file.fileno())), read_keys(file.read())
    except OSError as error:
        raise KeyFault(f"cannot be read ({error.strerror})") from None


@contextmanager
def changing(
    path: Path, before: Callable[[], None] = lambda: None
) -> Iterator[Callable[[Sequence[Key]], None]]:
    """Lock the file's folder against other writers, and give a function that writes other keys.
    Readers see all of the old file or all of the new one, also where the path is a link. `before`
    is called once the new one is on disk; what it raises keeps the old one."""
    target = Path(os.path.realpath(path))
    make_private(target.parent)
    folder = os.open(target.parent, os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)

        def write(keys: Sequence[Key]) -> None:
            _replace(target, write_keys(keys), before)
            os.fsync(folder)

        yield write
    finally:
        os.close(folder)


def _replace(target: Path, text: bytes, before: Callable[[], None]) -> None:
    """Replace the file and keep its owner and mode, since a server has to read it."""
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(fresh, "xb", opener=partial(os.open, mode=0o600)) as file:
            if target.exists():
                old, new = target.stat(), os.fstat(file.fileno())
                if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
                os.fchmod(file.fileno(), old.st_mode & 0o777)
            file.write(text)  # all of it: `os.write` may stop early on a disk that is nearly full
            file.flush()
            os.fsync(file.fileno())
        before()
        fresh.replace(target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _stamp(path: Path) -> object:
    try:
        return _stamp_of(path.stat())
    except OSError as error:
        return error.errno


def _stamp_of(found: os.stat_result) -> object:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _names(keys: set[Key]) -> list[str]:
    return sorted(map(str, keys))

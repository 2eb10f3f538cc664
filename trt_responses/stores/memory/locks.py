"""Locks of conversations in memory, one writer each. Leases only: no records."""

from __future__ import annotations

from collections.abc import Callable

from trt_responses.stores.whole import Lock

FEW = 1024
"""The number of locks from which expired ones are removed."""


class MemoryLocks:
    """Locks by conversation and owner. An expired lock does not count."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._locks: dict[tuple[str, str], tuple[Lock, float]] = {}
        self._most = FEW

    def allow(self, conversation_id: str, owner: str, lock: Lock | None) -> bool:
        """Whether the holder of `lock` may change the conversation; None: a writer without a
        lock."""
        current = self._current(conversation_id, owner)
        return current is None or current == lock

    def take(self, lock: Lock, lease_s: float) -> bool:
        current = self._current(lock.key, lock.owner)
        if current is not None and (current.writer != lock.writer or current.term > lock.term):
            return False
        now_s = self._clock_s()
        self._locks[lock.key, lock.owner] = (lock, now_s + lease_s)
        if len(self._locks) > self._most:
            self._locks = {key: entry for key, entry in self._locks.items() if entry[1] > now_s}
            self._most = max(FEW, 2 * len(self._locks))
        return True

    def renew(self, lock: Lock, lease_s: float) -> bool:
        return self._current(lock.key, lock.owner) == lock and self.take(lock, lease_s)

    def free(self, lock: Lock) -> None:
        if self._current(lock.key, lock.owner) == lock:
            del self._locks[lock.key, lock.owner]

    def clear(self) -> None:
        self._locks.clear()

    def _current(self, conversation_id: str, owner: str) -> Lock | None:
        lock, until_s = self._locks.get((conversation_id, owner), (None, 0.0))
        if lock is None or until_s > self._clock_s():
            return lock
        del self._locks[conversation_id, owner]
        return None

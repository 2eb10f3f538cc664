"""Conversations in memory that one writer has locked. Knows leases; knows no record."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.store import Lock


FEW = 1024
"""So many locks are kept before those whose lease is over are looked for."""


class MemoryLocks:
    """Locks by conversation and owner. One whose lease is over is none."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._locks: dict[tuple[str, str], tuple[Lock, float]] = {}
        self._most = FEW

    def allow(self, conversation_id: str, owner: str, lock: Lock | None) -> bool:
        """Whether whoever has this lock, or none, may change the conversation."""
        held = self._held(conversation_id, owner)
        return held is None or held == lock

    def take(self, lock: Lock, lease_s: float) -> bool:
        held = self._held(lock.key, lock.owner)
        if held is not None and (held.writer != lock.writer or held.term > lock.term):
            return False
        now_s = self._clock_s()
        self._locks[lock.key, lock.owner] = (lock, now_s + lease_s)
        if len(self._locks) > self._most:
            self._locks = {key: held for key, held in self._locks.items() if held[1] > now_s}
            self._most = max(FEW, 2 * len(self._locks))
        return True

    def renew(self, lock: Lock, lease_s: float) -> bool:
        return self._held(lock.key, lock.owner) == lock and self.take(lock, lease_s)

    def free(self, lock: Lock) -> None:
        if self._held(lock.key, lock.owner) == lock:
            del self._locks[lock.key, lock.owner]

    def clear(self) -> None:
        self._locks.clear()

    def _held(self, conversation_id: str, owner: str) -> Lock | None:
        lock, until_s = self._locks.get((conversation_id, owner), (None, 0.0))
        if lock is None or until_s > self._clock_s():
            return lock
        del self._locks[conversation_id, owner]
        return None

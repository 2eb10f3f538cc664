"""Locks of conversations: each in which a response is made has one writer, on all servers together.

A lock is in the store and has a lease. Knows the store's seam; knows no run and no block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from trt_responses.errors import IN_PROGRESS_S, ApiError, InvalidRequest
from trt_responses.stores.whole import Lock, WholeStore
from trt_responses.tasks import beside

logger = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 3


class HeldLock:
    """A conversation's lock that a run of this server holds."""

    def __init__(self, lock: Lock, locks: Locks) -> None:
        self.lock = lock
        self.lease_s = locks.store.lease_s
        self._locks = locks

    async def extend(self, lease_s: float) -> None:
        """Let it outlive its server for so long: another one may go on with the response."""
        self.lease_s = lease_s
        await self.renew()

    async def renew(self) -> None:
        """Renew the lock for one more lease, if it is still this server's."""
        try:
            still = await self._locks.store.renew_lock(self.lock, self.lease_s)
        except ApiError as fault:  # away for now: within the lease it may come back
            logger.warning(
                "failed to renew lock %s: %s",
                self.lock.key,
                fault.message,
            )
        else:
            if not still:
                self.leave()

    def leave(self) -> None:
        """Renew it no more: it is freed, or runs out unless another server goes on with the
        response."""
        self._locks.held.discard(self)

    async def free(self) -> None:
        """Release the lock; without the lock, this does nothing."""
        if self in self._locks.held:
            self.leave()
            try:
                await self._locks.store.unlock(self.lock)
            except ApiError as fault:  # its lease will run out
                logger.warning("failed to release lock %s: %s", self.lock.key, fault.message)


class Locks:
    """The locks of all conversations in which this server makes responses; it renews them."""

    def __init__(
        self, store: WholeStore, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.store = store
        self.held: set[HeldLock] = set()
        self._sleep = sleep

    def life(self) -> AbstractAsyncContextManager[object]:
        """While it lasts, locks are renewed."""
        return beside(self._renew())

    async def take(self, lock: Lock) -> HeldLock:
        """The lock, or `conversation_locked`."""
        held = HeldLock(lock, self)
        locking = asyncio.ensure_future(self.store.lock(lock, held.lease_s))
        try:
            acquired = await asyncio.shield(locking)
        except asyncio.CancelledError:  # the store's answer says whether it is held
            self.held.add(held)
            await asyncio.wait((locking,))
            await held.free()
            raise
        if not acquired:
            raise locked()
        self.held.add(held)
        return held

    async def _renew(self) -> None:
        while True:
            await self._sleep(self.store.lease_s / RENEWALS_PER_LEASE)
            for held in tuple(self.held):
                await held.renew()


def locked() -> InvalidRequest:
    """The refusal of a change while another one is under way."""
    return InvalidRequest(
        "Another process is currently operating on this conversation. Please retry in a few "
        "seconds.",
        param="conversation",
        code="conversation_locked",
        retry_after_s=IN_PROGRESS_S,
    )

"""Requests that are sent again with the same `Idempotency-Key`: they get the same response.

A table of this server's own, bounded by number and by age; a replica does not know it. A response
that failed or was cancelled is forgotten, so that a retry makes another. Knows runs by their log;
knows no HTTP but the key.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.response.run import Run

HEADER = b"idempotency-key"
MAX_KEY_CHARS = 255
FORGOTTEN = ("failed", "cancelled")


class Attempt:
    """The first request with a key, for those that repeat it: its run, and who is reading it."""

    def __init__(self, digest: bytes, until_s: float) -> None:
        self.digest = digest
        self.until_s = until_s
        self.run: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._readers = 0

    def started(self, run: Run) -> None:
        self.run.set_result(run)

    def refused(self, error: BaseException) -> None:
        """There will be no run: those that wait for it hear the same."""
        if isinstance(error, Exception):
            self.run.set_exception(error)
            self.run.exception()  # heard, even when nobody waits
        else:
            self.run.cancel()

    @property
    def lasts(self) -> bool:
        """Whether a request that repeats it gets what came of it."""
        if not self.run.done():
            return True
        if self.run.cancelled() or self.run.exception() is not None:
            return False
        log = self.run.result().log
        return not (log.closed and log.response.status in FORGOTTEN)

    def join(self) -> None:
        self._readers += 1

    def leave(self) -> None:
        """When nobody is left to read it, a foreground run ends."""
        self._readers -= 1
        if not self._readers and self.run.done() and not self.run.cancelled():
            run = self.run.result()
            if not run.log.response.background:
                run.cancel()


class Repeats:
    """Attempts by owner and key."""

    def __init__(self, *, max_keys: int, ttl_s: float, clock_s: Callable[[], float]) -> None:
        self._max_keys = max_keys
        self._ttl_s = ttl_s
        self._clock_s = clock_s
        self._attempts: OrderedDict[tuple[str, str], Attempt] = OrderedDict()

    def __len__(self) -> int:
        return len(self._attempts)

    def attempt(self, owner: str, key: str, asked: bytes) -> tuple[Attempt, bool]:
        """The attempt that the key stands for, and whether this request is its first."""
        if not 0 < len(key) <= MAX_KEY_CHARS:
            raise InvalidRequest(
                f"The header 'Idempotency-Key' must have 1 to {MAX_KEY_CHARS} characters.",
                code="invalid_idempotency_key",
            )
        now = self._clock_s()
        self._sweep(now)
        digest = hashlib.sha256(asked).digest()
        known = self._attempts.get((owner, key))
        if known is not None and known.lasts:
            if known.digest != digest:
                raise InvalidRequest(
                    "The Idempotency-Key was used for another request: take a new key for each.",
                    code="idempotency_key_reused",
                )
            return known, False
        first = self._attempts[owner, key] = Attempt(digest, now + self._ttl_s)
        self._attempts.move_to_end((owner, key))
        while len(self._attempts) > self._max_keys:
            self._attempts.popitem(last=False)
        return first, True

    def _sweep(self, now: float) -> None:
        while self._attempts:
            key, oldest = next(iter(self._attempts.items()))
            if oldest.until_s > now:
                return
            del self._attempts[key]

"""Requests that are sent again with the same `Idempotency-Key`: they get the same response.

A table of this server's own, bounded by number and by age; a replica does not know it. A response
that failed or was cancelled is forgotten, so that a retry makes another. The table owns the
foreground runs that it holds, for any of their readers may leave first. Knows runs by their log;
knows no HTTP but the key.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from trt_responses.errors import InvalidRequest
from trt_responses.run.run import Run
from trt_responses.run.runs import Runs
from trt_responses.web.repeats import Joined

logger = logging.getLogger(__name__)

MAX_KEY_CHARS = 255
FORGOTTEN = ("failed", "cancelled")


class Attempt:
    """What became of the first request with a key: its run, and how many are reading it."""

    def __init__(self, digest: bytes, until_s: float) -> None:
        self.digest = digest
        self.until_s = until_s
        self.run: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._readers: set[object] = set()

    def refused(self, error: BaseException) -> None:
        """Say that there will be no run: those that wait for one raise the same error."""
        if isinstance(error, Exception):
            self.run.set_exception(error)
            self.run.exception()  # retrieved, even when no reader waits
        else:
            self.run.cancel()

    @property
    def begun(self) -> Run | None:
        """The run; None while there is none, or where there will be none."""
        done = self.run.done() and not self.run.cancelled() and self.run.exception() is None
        return self.run.result() if done else None

    @property
    def lasts(self) -> bool:
        """Whether a request that repeats it gets what came of it."""
        if (run := self.begun) is None:
            return not self.run.done()
        return not (run.log.closed and run.log.response.status in FORGOTTEN)

    def join(self) -> Callable[[], None]:
        """Count one more reader. The function returned says that it has left, once or more often;
        without readers, a run that no job makes ends."""
        reader = object()
        self._readers.add(reader)

        def leave() -> None:
            self._readers.discard(reader)
            if not self._readers and (run := self.begun) is not None and not run.kept:
                run.cancel()

        return leave


class Repeats:
    """The table of attempts, by owner and key."""

    def __init__(self, *, max_keys: int, ttl_s: float, clock_s: Callable[[], float]) -> None:
        self._max_keys = max_keys
        self._ttl_s = ttl_s
        self._clock_s = clock_s
        self._attempts: OrderedDict[tuple[str, str], Attempt] = OrderedDict()
        self._making: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """The time in which runs are made; those that still go on are cancelled at its end."""
        try:
            yield
        finally:
            for making in self._making:
                making.cancel()
            if self._making:
                await asyncio.wait(self._making)

    def __len__(self) -> int:
        return len(self._attempts)

    def attempt(self, owner: str, key: str, body: bytes) -> tuple[Attempt, bool]:
        """The attempt that the key stands for, and whether this request is its first."""
        if not 0 < len(key) <= MAX_KEY_CHARS:
            raise InvalidRequest(
                f"The header 'Idempotency-Key' must have 1 to {MAX_KEY_CHARS} characters.",
                code="invalid_idempotency_key",
            )
        now = self._clock_s()
        self._sweep(now)
        digest = hashlib.sha256(body).digest()
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

    async def join(
        self, key: str, body: bytes, start: Callable[[], Awaitable[Run]], owner: str, runs: Runs
    ) -> Joined:
        """The run that a key stands for, begun by its first request; one more reads it. `body` is
        all that tells this request from others."""
        attempt, first = self.attempt(owner, key, body)
        leave = attempt.join()
        if not first:
            run = await asyncio.shield(attempt.run)
            return Joined(run, leave, {"x-trt-idempotent-replay": "true"})
        try:
            run = await start()
        except BaseException as error:
            attempt.refused(error)
            raise
        if not run.kept:  # it is made for all its readers, in a task of its own
            making = asyncio.create_task(_make(run, runs))
            self._making.add(making)
            making.add_done_callback(self._making.discard)
        attempt.run.set_result(run)
        return Joined(run, leave, {})

    def forget(self, response_id: str, owner: str) -> None:
        """The response was deleted: a request that repeats its own makes another."""
        for key, attempt in tuple(self._attempts.items()):
            if key[0] == owner and (run := attempt.begun) is not None and run.id == response_id:
                del self._attempts[key]

    def _sweep(self, now: float) -> None:
        while self._attempts:
            key, oldest = next(iter(self._attempts.items()))
            if oldest.until_s > now:
                return
            del self._attempts[key]


async def _make(run: Run, runs: Runs) -> None:
    try:
        await runs.make(run)
    except Exception:  # the server's own fault behind the run's end, without a reader
        logger.exception("failed to make response %s", run.id)
    finally:
        await runs.release(run)

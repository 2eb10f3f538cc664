"""Foreground streams that can be read again when they were cut: `stream_options.resumable_seconds`.

Such a response is made as a background one is, but ends when it had no reader for so long. Knows
requests, and runs by their log; knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import ApiError, InvalidRequest, invalid_value, unsupported_value
from trt_responses.feature import Step
from trt_responses.features.background.step import BackgroundStep
from trt_responses.run.draft import Draft
from trt_responses.run.run import Run
from trt_responses.stores.whole import Lock, WholeStore
from trt_responses.wire.fields import Field

SECONDS = "stream_options.resumable_seconds"
MOST_S = 600
FIELD = Field(
    SECONDS,
    "honoured",
    f"0 to {MOST_S}: how long a cut stream stays resumable; see state.md",
    ours=True,
)
READING_S = 3.0
"""How long a reader at another server counts behind its last look at the store."""


def resumable_s(accepted: Accepted) -> int:
    """How long the response goes on without a reader; 0: not at all."""
    seconds = accepted.ignored.get(SECONDS)
    if seconds is None or accepted.echo.background:
        return 0
    if type(seconds) is not int or not 0 <= seconds <= MOST_S:
        raise invalid_value(SECONDS, f"it must be a whole number from 0 to {MOST_S}")
    return seconds


def check(accepted: Accepted, *, stream: bool) -> bool:
    """Whether the stream is to be resumable. Raises an `InvalidRequest` where it cannot be."""
    if not resumable_s(accepted):
        return False
    for field, given in (("stream", stream), ("store", accepted.store)):
        if not given:
            raise InvalidRequest(
                f"'{SECONDS}' needs '{field}: true': a cut stream is read again from the store.",
                param=SECONDS,
                code="invalid_value",
            )
    return True


class Resumable:
    """Refuses the field where no job makes the run: in other APIs."""

    reads = ("ignored",)

    def accept(self, accepted: Accepted) -> Step | None:
        return _OnlyJobs() if resumable_s(accepted) else None


class _OnlyJobs(Step):
    async def acquire(self, draft: Draft) -> None:
        if not any(isinstance(step, BackgroundStep) for step in draft.steps):
            raise unsupported_value(SECONDS, "only streams of '/v1/responses' are resumable")


class Grace:
    """Cancels a run that had no reader for so long, here or at another server."""

    def __init__(
        self, run: Run, seconds: int, store: WholeStore, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._run = run
        self._seconds = seconds
        self._store = store
        self._sleep = sleep
        self._readers = 0
        self._changed = asyncio.Event()

    @contextmanager
    def reader(self) -> Iterator[None]:
        """A block in which somebody reads the run here."""
        self._readers += 1
        self._changed.set()
        try:
            yield
        finally:
            self._readers -= 1
            self._changed.set()

    async def watch(self) -> None:
        """Cancel the run as soon as it had no reader for too long."""
        while True:
            self._changed.clear()
            waiting = asyncio.ensure_future(self._changed.wait())
            try:
                if self._readers:
                    await waiting
                elif await self._expires(waiting) and not await self._read_elsewhere():
                    self._run.cancel()
                    return
            finally:
                waiting.cancel()

    async def _expires(self, waiting: asyncio.Future[Any]) -> bool:
        """Whether the time passes before a reader comes."""
        sleeping = asyncio.ensure_future(self._sleep(self._seconds))
        try:
            await asyncio.wait((waiting, sleeping), return_when=asyncio.FIRST_COMPLETED)
            return not waiting.done()
        finally:
            sleeping.cancel()

    async def _read_elsewhere(self) -> bool:
        try:
            lock = Lock(_key(self._run.id), self._run.owner, self._run.id)
            return not await self._store.lock(lock, READING_S)
        except ApiError:  # unknown: the store is away
            return True


async def note_reader(store: WholeStore, response_id: str, owner: str) -> None:
    """Let the server that makes a response know that it is read at this one."""
    with suppress(ApiError):
        await store.lock(Lock(_key(response_id), owner, "reader"), READING_S)


def _key(response_id: str) -> str:
    return f"read:{response_id}"

"""The seam of requests that are sent again: they share the run of the first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from trt_responses.errors import InvalidRequest
from trt_responses.run.run import Run
from trt_responses.run.runs import Runs
from trt_responses.web.headers import IDEMPOTENCY_KEY


class Joined(NamedTuple):
    """A run that several may read."""

    run: Run
    leave: Callable[[], None]
    """To be called when this reader has left, once or more often."""
    headers: dict[str, str]
    """Headers that say whether it was made for an earlier request."""


class Repeats(Protocol):
    """Finds the run that a key stands for."""

    async def join(
        self, key: str, body: bytes, start: Callable[[], Awaitable[Run]], owner: str, runs: Runs
    ) -> Joined:
        """The run that a key stands for, begun by its first request; one more reads it. `body` is
        all that tells this request from others."""
        ...


def installed(repeats: Repeats | None) -> Repeats:
    """The seam, or a refusal where nothing stands behind it."""
    if repeats is None:
        raise InvalidRequest(
            "The header 'Idempotency-Key' cannot be honoured: it is not installed here. Leave the "
            "header out.",
            param=IDEMPOTENCY_KEY.decode(),
            code="unsupported_value",
        )
    return repeats

"""The seam of admission: who may begin a response, and when the engine has a place for it.

Runs know this much of it; `features/limits/` decides who is let in, and in which order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from trt_responses.errors import ServerBusy


class Place(Protocol):
    """The place of one run, from its request's arrival to its end."""

    def line_up(self, prompt_tokens: int) -> None:
        """Wait for a turn from now on. Raises when so many tokens cannot wait."""
        ...

    def turn(self) -> asyncio.Future[None] | None:
        """A future that is done when the run may use the engine, or has left the place; None when
        it may do so now."""
        ...

    def headers(self) -> Mapping[str, str]:
        """HTTP headers about the owner's limits; empty where it has none."""
        ...

    def leave(self, generated_tokens: int = 0) -> None:
        """Give the place to the next run. Synchronous and idempotent."""
        ...


class Admission(Protocol):
    """Decides who may begin a response, and when the engine has a place for it."""

    def enter(self, owner: str) -> Place:
        """A place for a response of this owner, or an `ApiError` that says when to come again."""
        ...

    def check_rates(self, owner: str, tokens: int) -> None:
        """Raise an `ApiError` if the owner could not begin one more response in this minute, had
        it used so many tokens more."""
        ...

    def count_background(self, owner: str, more: int) -> int:
        """Count so many more background responses of an owner, or less, and return how many there
        are."""
        ...

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...


class OpenAdmission:
    """Admits every request while the engine has places, and lets none wait: a server without the
    feature of limits."""

    waiting = 0

    def __init__(self, places: Callable[[], int]) -> None:
        self.running = 0
        self._places = places
        self._background: Counter[str] = Counter()

    def enter(self, owner: str) -> Place:
        if self.running >= self._places():
            raise ServerBusy(f"{self.running} responses are being made, all this server takes.")
        self.running += 1
        return _OpenPlace(self)

    def check_rates(self, owner: str, tokens: int) -> None:
        """No owner has limits."""

    def count_background(self, owner: str, more: int) -> int:
        self._background[owner] += more
        return self._background[owner]


class _OpenPlace:
    def __init__(self, admission: OpenAdmission) -> None:
        self._admission: OpenAdmission | None = admission

    def line_up(self, prompt_tokens: int) -> None: ...

    def turn(self) -> asyncio.Future[None] | None:
        return None

    def headers(self) -> Mapping[str, str]:
        return {}

    def leave(self, generated_tokens: int = 0) -> None:
        if self._admission is not None:
            self._admission.running -= 1
            self._admission = None

"""The seam of admission: who may begin a response, and when the engine has a place for it.

Runs know this much of it; `features/limits/` decides who is let in, and in which order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping


class Place(Protocol):
    """The place of one run, from its request's arrival to its end."""

    def line_up(self, prompt_tokens: int) -> None:
        """Wait for a turn from now on. Raises when so many tokens cannot wait."""
        ...

    def turn(self) -> asyncio.Future[None] | None:
        """A future that is done when the engine may be asked, or the place was left; None when it
        may be asked now."""
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

    def look(self) -> None:
        """Give free places to those who wait, since the engine may have come back."""
        ...

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

"""The seam of admission: who may begin a response, and when the engine has a place for it.

Runs know this much of it; who is let in, and in which order, is decided in `access/admission.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping


class Place(Protocol):
    """What one run has, from its request's arrival to its end."""

    def line_up(self, prompt_tokens: int) -> None:
        """Wait for a turn from now on. Raises when so many tokens cannot wait."""
        ...

    def turn(self) -> asyncio.Future[None] | None:
        """What is done when the engine may be asked, or the place was left; None when it may be
        asked now."""
        ...

    def headers(self) -> Mapping[str, str]:
        """What its reply says of its owner's limits, as HTTP headers; nothing where it has none."""
        ...

    def leave(self, generated_tokens: int = 0) -> None:
        """Let the next one have it. Synchronous and idempotent."""
        ...


class Admission(Protocol):
    def enter(self, owner: str) -> Place:
        """A place for a response of this owner, or an `ApiError` that says when to come again."""
        ...

    def look(self) -> None:
        """Give free places to those who wait: the engine may have come back."""
        ...

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

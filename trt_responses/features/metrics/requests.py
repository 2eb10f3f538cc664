"""What is told of an HTTP request when it is over, and to whom."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class RequestFacts(NamedTuple):
    """What became of one request."""

    request_id: str
    method: str
    endpoint: str
    """The route that was asked for, never its path."""
    status: int
    end: str
    """How the response ended that it asked for: `background` if it goes on, `none` if there is
    none."""
    total_ns: int


class RequestListener(Protocol):
    """Hears of each request at its end."""

    def request_ended(self, facts: RequestFacts) -> None: ...

"""What became of each request that is over, for those who count and log requests."""

from __future__ import annotations

import time
from typing import NamedTuple

from starlette.types import Scope

from trt_responses.run.run import Run

UNKNOWN = "unknown"
CLIENT_LEFT = 499
"""The status of a request whose client left before any reply; it is not sent. nginx calls it so."""


class RequestFacts(NamedTuple):
    """What became of one request."""

    request_id: str
    method: str
    endpoint: str
    """The path of the route, never the request's."""
    status: int
    end: str
    """How its response ended: `background` if it still runs, `none` if there is none."""
    total_ns: int


def facts_of(scope: Scope, unrouted: int | None) -> RequestFacts:
    """What became of a request. An endpoint's name is its route's, never a request's path."""
    state, method, route = scope["state"], scope["method"], scope.get("route")
    endpoint = route.path if route else state.get("endpoint", UNKNOWN)
    status = state.get("status", CLIENT_LEFT)
    if unrouted is not None:  # any method may have been sent
        method, endpoint, status = "any", UNKNOWN, unrouted
    return RequestFacts(
        request_id=state["request_id"],
        method=method,
        endpoint=endpoint,
        status=status,
        end=_end(state.get("run")),
        total_ns=time.monotonic_ns() - state["arrival_ns"],
    )


def _end(run: Run | None) -> str:
    """How a request's response ended; one in the background still runs."""
    if run is None:
        return "none"
    return run.log.begun.status if run.log.closed else "background"

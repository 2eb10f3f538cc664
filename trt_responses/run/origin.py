"""Where a request came from: its id, the caller's trace, and the session that it says it is of.

The layer that takes a request sets it, and a run that begins within the request reads it: a context
variable, as tracing has everywhere, so that no layer between the two hands it on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple


class Origin(NamedTuple):
    """The origin of a request."""

    request_id: str = ""
    trace_headers: Mapping[str, str] = MappingProxyType({})
    """W3C `traceparent`, and `tracestate` with it; empty when the caller traces nothing."""
    session: str | None = None
    """Its `x-session-id`, by which gateways keep a conversation in one place."""


NOWHERE = Origin()
ORIGIN: ContextVar[Origin] = ContextVar("origin", default=NOWHERE)

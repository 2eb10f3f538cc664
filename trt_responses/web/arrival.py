"""What a client gives of a request's origin: an id of its own, the trace that it belongs to, and
its session."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

REQUEST_ID = re.compile(rb"[\w.:@/+=-]{1,128}", re.ASCII)
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
GIVEN = frozenset((b"x-request-id", b"traceparent", b"tracestate", b"x-session-id"))
"""The headers that `given` reads."""
NONE: tuple[str, Mapping[str, str], str | None] = "", {}, None
"""What a request without them gives."""
MAX_TRACESTATE_BYTES = 512
MAX_SESSION_BYTES = 256


def given(
    headers: Iterable[tuple[bytes, bytes]],
) -> tuple[str, Mapping[str, str], str | None]:
    """The request's id, trace and session, as far as the client gives them in a form that can be
    passed on."""
    request_id, parent, state, session = b"", b"", b"", None
    for name, value in headers:
        if name == b"x-request-id" and REQUEST_ID.fullmatch(value):
            request_id = value
        elif name == b"traceparent" and TRACEPARENT.fullmatch(value):
            parent = value
        elif name == b"tracestate" and len(value) <= MAX_TRACESTATE_BYTES:
            state = value
        elif name == b"x-session-id" and 0 < len(value) <= MAX_SESSION_BYTES:
            session = value.decode("latin-1")
    if not parent:
        return request_id.decode(), {}, session
    traced = {"traceparent": parent.decode()}
    if state:
        traced["tracestate"] = state.decode("latin-1")
    return request_id.decode(), traced, session

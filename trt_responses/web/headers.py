"""Headers of requests, and those that every reply has. Knows no route and no body."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import quote

from trt_responses.errors import Forbidden, InvalidRequest
from trt_responses.wire.dialect import DIALECTS, OPENAI

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from trt_responses.health.lifecycle import Lifecycle
    from trt_responses.run.run import Run
    from trt_responses.wire.dialect import Dialect

logger = logging.getLogger(__name__)

DIALECT_HEADER = b"x-trt-dialect"
IDEMPOTENCY_KEY = b"idempotency-key"

BY_NAME = "trt_responses.headers"
"""Where a request's scope holds its headers by name; of several with one name, the first."""
CLOSE = {"connection": "close"}
NAMED, NAMED_CHARS = 32, 64
"""How many names stand in a header, and how many characters of each."""


def origin_refused(origin: str) -> Forbidden:
    """The refusal of a page's origin."""
    return Forbidden(
        f"Pages of {origin!r:.100} may not use this server: allow the origin in "
        "TRT_RESPONSES_ALLOWED_ORIGINS.",
        code="origin_not_allowed",
    )


class ReplyHeaders:
    """The headers of every reply."""

    def __init__(self, clock_ns: Callable[[], int], lifecycle: Lifecycle | None = None) -> None:
        """With a `lifecycle`, a draining server announces that the connection closes, so that
        clients go elsewhere with the next request."""
        self._clock_ns = clock_ns
        self._lifecycle = lifecycle
        self.for_pages: Callable[[Request], dict[str, str]] | None = None
        """Gives the headers by which a browser shows a reply to a page of another origin."""

    def __call__(self, request: Request) -> dict[str, str]:
        state = request.scope.get("state", {})
        now_ns = self._clock_ns()
        spent_ms = (now_ns - state.get("arrival_ns", now_ns)) // 1_000_000
        headers = {
            "x-request-id": state.get("request_id", ""),
            "openai-processing-ms": str(spent_ms),
            "cache-control": "no-store",
        }
        if self.for_pages is not None:
            headers |= self.for_pages(request)
        if self._lifecycle is not None and self._lifecycle.state == "draining":
            headers |= CLOSE
        return headers


def header(request: Request, name: bytes) -> str | None:
    """The first header of this name. The framework's own look-up takes a microsecond each."""
    scope = request.scope
    if (by_name := scope.get(BY_NAME)) is None:
        by_name = scope[BY_NAME] = dict(reversed([*scope["headers"]]))
    return None if (value := by_name.get(name)) is None else str(value, "latin-1")


def ignored_header(names: Sequence[str], request: Request | None = None) -> dict[str, str]:
    """The header that names ignored fields; none when there are none. With the `request` of an
    endpoint that keeps no replies, it names an idempotency key too."""
    if request is not None and header(request, IDEMPOTENCY_KEY) is not None:
        names = [*names, IDEMPOTENCY_KEY.decode()]
    return {"x-trt-ignored": named(names)} if names else {}


def add_ignored(reply: Response, names: Sequence[str]) -> None:
    """Name these, too, in the header of ignored fields."""
    if names:
        before = reply.headers.get("x-trt-ignored")
        reply.headers["x-trt-ignored"] = ", ".join(filter(None, (before, named(names))))


def dropped_header(kinds: Sequence[str]) -> dict[str, str]:
    """Kinds of tools that were left out; they are also logged."""
    if kinds:
        logger.info("dropped tools that neither client nor server runs: %s", named(kinds))
    return {"x-trt-dropped-tools": named(kinds)} if kinds else {}


def run_headers(run: Run) -> dict[str, str]:
    """What a reply says of the run that it tells: items that were left out, schemas that may not be
    followed, how much its owner may still use, and which version of the engine makes it."""
    headers = run.headers
    if run.truncated:
        headers = {"x-trt-truncated": named(run.truncated), **headers}
    if run.unfollowed:
        headers = {"x-trt-schema-left": named(run.unfollowed), **headers}
    return headers


def named(names: Sequence[str]) -> str:
    """Names as a header's value. A client chose them, so what no header may hold is escaped."""
    shown = [quote(name[:NAMED_CHARS], safe="[]") for name in names[:NAMED]]
    if len(names) > NAMED:
        shown.append(f"and {len(names) - NAMED} more")
    return ", ".join(shown)


def dialect_of(request: Request) -> Dialect:
    """The dialect in which this request wants its events."""
    name = header(request, DIALECT_HEADER)
    if name is None:
        return OPENAI
    if (dialect := DIALECTS.get(name.strip().lower())) is None:
        raise InvalidRequest(
            f"Invalid value for the header '{DIALECT_HEADER.decode()}': {name!r:.100} is not "
            f"installed here, expected one of {', '.join(map(repr, DIALECTS))}.",
            param=DIALECT_HEADER.decode(),
            code="invalid_value",
        )
    return dialect

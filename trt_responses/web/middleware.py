"""The one ASGI layer around all routes: what is done for each request, whatever it asks for.

It notes when a request arrived, its id and its trace, answers preflights, routes a HEAD as the GET
that it stands for, and tells in the API's shape what no route answers. When a request is over, its
listeners hear what became of it.
One layer does it all, since each costs 1 % of a short response. `receive` and `send` are left
untouched, for `send` is called for every engine step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from trt_responses.run.origin import ORIGIN, Origin
from trt_responses.web.arrival import GIVEN, NONE, given
from trt_responses.web.endpoint import reply_of
from trt_responses.web.headers import BY_NAME, ReplyHeaders

Ended = Callable[["Scope", int | None], None]
"""Called when a request is over, with its scope and, where no route answered, its status."""


class Middleware:
    """Writes time and id into a copy of `scope["state"]`, before anything else sees a request. An
    id that the client gives is kept, so that its log and ours can be laid side by side."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        clock_ns: Callable[[], int],
        mint: Callable[[str], str],
        headers: ReplyHeaders,
        ended: Sequence[Ended],
        preflight: Callable[[Request], Response | None] | None,
    ) -> None:
        """`preflight` replies to an OPTIONS request that is one."""
        self._app = app
        self._clock_ns = clock_ns
        self._mint = mint
        self._preflight = preflight
        self._headers = headers
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (kind := scope["type"]) in ("http", "websocket"):
            arrival_ns = self._clock_ns()
            headers = scope["headers"]
            by_name = dict(reversed([*headers]))
            own_id, traced, session = NONE if GIVEN.isdisjoint(by_name) else given(headers)
            request_id = own_id or self._mint("req")
            ORIGIN.set(Origin(request_id, traced, session))
            state = scope.get("state", {})
            state = {**state, "arrival_ns": arrival_ns, "request_id": request_id}
            scope = {**scope, BY_NAME: by_name, "state": state}
        if kind != "http":
            await self._app(scope, receive, send)
            return
        if (method := scope["method"]) == "OPTIONS" and self._preflight is not None:
            if (reply := self._preflight(Request(scope))) is not None:
                await reply(scope, receive, send)
                return
        elif method == "HEAD":
            scope["method"] = "GET"  # the server knows, and sends no body
        try:
            await self._app(scope, receive, send)
        except HTTPException as error:  # the router's, which has sent nothing
            self._tell(scope, error.status_code)
            request = Request({**scope, "method": method})
            await reply_of(error, request, self._headers(request))(scope, receive, send)
        except BaseException:
            self._tell(scope)
            raise
        else:
            self._tell(scope)

    def _tell(self, scope: Scope, unrouted: int | None = None) -> None:
        for ended in self._ended:
            ended(scope, unrouted)

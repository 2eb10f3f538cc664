"""FastAPI as this server uses it, and the one place where it is bent.

Most routes are FastAPI's own: routers, parameters, dependencies and their OpenAPI (`ColdRoute`).
Those that may write a stream are described to FastAPI in the same way and run as raw ASGI apps
(`HotRoute`), for a stream's `send` is called for every engine step, and each layer that wraps it
costs 0.5 µs a token. For the same reason `App` has no layers of FastAPI's own: what they do for a
request that breaks is done before its reply begins, by the routes and by our
one layer (`middleware.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from functools import cache, wraps
from types import MethodType
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from starlette.requests import ClientDisconnect, Request  # FastAPI reads the annotations
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from trt_responses.web.endpoint import note_status, reply_of
from trt_responses.web.headers import add_ignored

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False}
"""FastAPI's own would wrap each `send`, once a process sets a tracer for something else."""


class App(FastAPI):
    """FastAPI without its layers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            openapi_url=None,  # a folder serves it, with the headers of every reply
            redirect_slashes=False,  # a redirect would go where an unchecked Host says
            telemetry=NO_TELEMETRY,
            **options,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """FastAPI's own asks for telemetry at each request, and goes through Starlette's."""
        if scope["type"] != "http" or self.middleware_stack is None or self.root_path:
            await super().__call__(scope, receive, send)
        else:
            scope["app"] = self
            await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = _HotFirst(self.router)
        for layer, args, kwargs in reversed(self.user_middleware):
            app = layer(app, *args, **kwargs)
        return app


class _HotFirst:
    """Finds hot routes by their path alone, since the router's search and what FastAPI's routes
    need take 3 % of a short response. All other requests go on to the router."""

    def __init__(self, router: APIRouter) -> None:
        self._router = AsyncExitStackMiddleware(router)  # which FastAPI's routes ask for
        self._hot = {
            (method, route.path): route
            for route in router.routes
            if isinstance(route, HotRoute) and not route.param_convertors
            for method in route.methods or ()
        }

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            route = self._hot.get((scope["method"], path))
            if route is not None:
                scope["route"] = route
                return route.app(scope, receive, send)
        return self._router(scope, receive, send)


class _Shared(type):
    """Makes a route once for all apps of a process that ask for the same one: FastAPI takes half a
    millisecond to find out what it needs, and there are fifty. A function of its own, which may
    know an app, is not kept."""

    def __call__(cls, path: str, endpoint: Callable[..., Any], **options: Any) -> Any:
        if isinstance(endpoint, MethodType):
            endpoint = _function(endpoint.__func__)
        elif issubclass(cls, ColdRoute):
            return super().__call__(path, endpoint, **options)
        key = cls, path, endpoint, repr(options)
        if key not in _routes:
            _routes[key] = super().__call__(path, endpoint, **options)
        return _routes[key]


_routes: dict[tuple[object, ...], APIRoute] = {}


class ColdRoute(APIRoute, metaclass=_Shared):
    """A route of FastAPI's whose faults have the API's shape. It knows no app."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        known = {each.alias for each in self.dependant.query_params}

        async def answered(request: Request) -> Response:
            try:
                reply = await handler(request)
                add_ignored(reply, sorted(request.query_params.keys() - known))
            except ClientDisconnect:
                return Response()  # which is sent nowhere
            except Exception as error:
                reply = reply_of(error, request, request.app.state.reply_headers(request))
            note_status(request, reply)
            return reply

        return answered


@cache
def _function(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method as a function that finds its object in `request.app.state.endpoints`. FastAPI's
    caches keep each endpoint it ever saw, and with a bound method the whole closed app."""
    signature = inspect.signature(method)
    parameters = [*signature.parameters.values()][1:]
    takes_request = "request" in signature.parameters
    if not takes_request:
        parameters.append(inspect.Parameter("request", KEYWORD_ONLY, annotation=Request))

    @wraps(method)
    async def function(request: Request, **values: Any) -> Any:
        endpoints = request.app.state.endpoints[method.__qualname__.rpartition(".")[0]]
        given = {"request": request} if takes_request else {}
        return await method(endpoints, **given, **values)

    function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


class HotRoute(APIRoute, metaclass=_Shared):
    """A route that FastAPI describes from a function's signature and options, and never calls."""


def hot_route(path: str, described: Callable[..., Any], app: ASGIApp, **options: Any) -> HotRoute:
    """A hot route whose requests `app` answers. `described` is a function that lasts."""
    route = copy(HotRoute(path, described, **options))
    route.app = app
    return route


async def _owner(request: Request) -> str:
    owner: str = request.app.state.guard.owner(request)
    return owner


async def _admin(request: Request) -> str:
    name: str = request.app.state.guard.admin(request)
    return name


async def _anybody(request: Request) -> None:
    request.app.state.anybody.owner(request)


Owner = Annotated[str, Depends(_owner)]
"""A parameter of a cold route: whose key came with the request, which the guard has let in."""
Admin = Annotated[str, Depends(_admin)]
"""A parameter of a cold route that admins may call: which of them calls."""
Anybody = Depends(_anybody)
"""A dependency of routes that need no key and none of the server's own hosts."""


def replies(*refused: int) -> dict[int | str, dict[str, Any]]:
    """What a route's description says of its statuses: 200, and those with which it refuses."""
    statuses: dict[int | str, dict[str, Any]] = {200: _described("OK", {"type": "object"})}
    error = _described("Refused", {"$ref": "#/components/schemas/Error"})
    return statuses | dict.fromkeys(refused, error)


def _described(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}

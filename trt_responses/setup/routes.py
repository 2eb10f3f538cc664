"""The routes of a server: those of the core, and those that each folder brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, WebSocketRoute

from trt_responses.web.docs import CREATE, STREAMED, body_route
from trt_responses.web.guard import Guard
from trt_responses.web.responses import Responses
from trt_responses.web.shared import Shared
from trt_responses.wire.limits import RequestLimits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from trt_responses.setup.server import Server
    from trt_responses.web.framework import HotRoute


def add_routes(app: FastAPI, server: Server) -> None:
    """Add every endpoint to the app. The order decides between paths that match alike; a path with
    parameters comes after those without."""
    shared = _shared(server)

    ordered = sorted([(0, _hot), *server.routes], key=lambda one: one[0])
    made = [each for _, routes in ordered for each in routes(shared)]
    raw = [each for each in made if isinstance(each, BaseRoute)]
    cold = [each for each in made if not isinstance(each, BaseRoute)]
    app.state.guard, app.state.reply_headers = shared.guard, shared.headers
    app.state.anybody = Guard(hosts=("*",), origins=lambda origin: True)
    app.state.sockets = next((r.endpoint for r in raw if isinstance(r, WebSocketRoute)), None)
    app.state.endpoints = {type(each).__qualname__: each for each in cold}
    app.router.routes += sorted(raw, key=lambda route: "{" in getattr(route, "path", ""))
    for each in cold:
        app.include_router(each.router())


def _shared(server: Server) -> Shared:
    settings = server.settings
    limits = RequestLimits(
        body_bytes=settings.max_body_bytes,
        body_values=settings.max_body_values,
        tools=settings.max_tools,
        input=settings.max_input,
    )
    guard = Guard(
        hosts=settings.hosts(),
        origins=server.allows_origin,
        keys=server.keys,
        lifecycle=server.lifecycle,
    )
    return Shared(
        settings=settings,
        parts=server.parts,
        runs=server.runs,
        guard=guard,
        headers=server.headers,
        limits=limits,
        steps=server.reading(limits, server.runs.built_in),
        stream_limits=server.stream_limits,
        about=server.about,
        card_of=server.card_of,
        sleep=server.sleep,
        jobs=server.jobs,
        repeats=server.repeats,
        on_delete=server.on_delete,
        by_class=server.by_class,
    )


def _hot(shared: Shared) -> list[HotRoute]:
    """The routes of responses that are no functions of FastAPI's, with their descriptions."""
    responses = Responses(shared)
    return [
        body_route(
            shared,
            "/v1/responses",
            responses.create,
            CREATE,
            refused=(429, 500),
            name="create",
            summary="Create a response",
            response_description="The response, or with `stream: true` its events.",
            openapi_extra=STREAMED,
        ),
        body_route(
            shared,
            "/v1/responses/input_tokens",
            responses.count,
            CREATE,
            name="count",
            summary="Count the tokens of an input",
        ),
    ]

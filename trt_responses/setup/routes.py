"""The routes of a server: those of the core, and those that each folder brings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, WebSocketRoute

from trt_responses.accept.model_names import ModelNames
from trt_responses.apis.chat import endpoint as chat
from trt_responses.apis.chat import fields as chat_fields
from trt_responses.apis.kserve import endpoints as kserve
from trt_responses.apis.messages import endpoint as messages
from trt_responses.apis.messages import fields as messages_fields
from trt_responses.apis.playground import endpoint as playground
from trt_responses.apis.websocket import endpoint as websocket
from trt_responses.apis.websocket import request as websocket_request
from trt_responses.features.background import endpoint as background
from trt_responses.features.background.endpoint import BackgroundJobs
from trt_responses.features.compaction import endpoint as compaction
from trt_responses.features.containers import endpoint as containers
from trt_responses.features.conversations import endpoint as conversations
from trt_responses.features.explain import endpoint as explain
from trt_responses.features.limits import endpoint as limits
from trt_responses.features.limits.audit import Audit
from trt_responses.features.metrics import endpoint as metrics
from trt_responses.features.rollout import endpoint as rollout
from trt_responses.run.health import Health
from trt_responses.web.docs import Docs, hot_routes
from trt_responses.web.fields import Fields
from trt_responses.web.guard import Guard
from trt_responses.web.health import HealthChecks
from trt_responses.web.models import Models
from trt_responses.web.responses import Responses
from trt_responses.web.shared import Shared
from trt_responses.web.stored import Stored
from trt_responses.web.stream.sse import StreamLimits
from trt_responses.wire.fields import FIELDS
from trt_responses.wire.limits import RequestLimits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from trt_responses.settings import Settings
    from trt_responses.setup.parts import ServerParts
    from trt_responses.web.framework import HotRoute
    from trt_responses.web.headers import ReplyHeaders
    from trt_responses.web.shared import Cold, Routes


def add_routes(app: FastAPI, server: ServerParts, headers: ReplyHeaders) -> None:
    """Add every endpoint to the app. The order decides between paths that match alike; a path with
    parameters comes after those without."""
    shared = _shared(server, headers)
    made = [each for routes in ROUTES for each in routes(shared)]
    raw = [each for each in made if isinstance(each, BaseRoute)]
    cold = [each for each in made if not isinstance(each, BaseRoute)]
    app.state.guard, app.state.reply_headers = shared.guard, headers
    app.state.anybody = Guard(hosts=("*",), origins=("*",))
    app.state.sockets = next((r.endpoint for r in raw if isinstance(r, WebSocketRoute)), None)
    app.state.endpoints = {type(each).__qualname__: each for each in cold}
    app.router.routes += sorted(raw, key=lambda route: "{" in getattr(route, "path", ""))
    for each in cold:
        app.include_router(each.router())


def _shared(server: ServerParts, headers: ReplyHeaders) -> Shared:
    settings, telemetry = server.settings, server.telemetry
    stream_limits = StreamLimits(server.keep_alive, settings.max_backlog_bytes)
    guard = Guard(
        hosts=settings.hosts(),
        origins=settings.allowed_origins,
        keys=server.keys,
        lifecycle=server.lifecycle,
    )
    jobs = BackgroundJobs(server.background, server.store, headers, stream_limits)
    parts = (
        *(server.names, server.repeats, server.lifecycle, server.health, server.keys, jobs),
        *(server.versions, server.exchange, Audit(settings.audit_path)),
        *(telemetry.metrics, telemetry.statistics, telemetry.explanations),
    )
    return Shared(
        settings=settings,
        parts=server.parts,
        runs=server.runs,
        guard=guard,
        headers=headers,
        limits=_limits(settings),
        stream_limits=stream_limits,
        about=server.about,
        card_of=server.versions.card_of,
        sleep=server.sleep,
        jobs=jobs,
        on_delete=(server.background.drop, telemetry.explanations.forget),
        by_class={type(part): part for part in parts},
    )


def _hot(shared: Shared) -> list[HotRoute]:
    return hot_routes(shared, Responses(shared), Stored(shared))


def _stored(shared: Shared) -> list[Cold]:
    return [Stored(shared)]


def _state(shared: Shared) -> list[Cold]:
    headers, engine = shared.headers, shared.parts.engine
    return [
        Fields(headers, FIELD_TABLES, lambda: engine.limits().ignores),
        Models(shared.of(ModelNames), int(time.time()), headers),
        HealthChecks(shared.of(Health), headers, about=shared.about),
    ]


def _docs(shared: Shared) -> list[Cold]:
    return [Docs(shared.headers)]


def _limits(settings: Settings) -> RequestLimits:
    return RequestLimits(
        body_bytes=settings.max_body_bytes,
        body_values=settings.max_body_values,
        tools=settings.max_tools,
        input=settings.max_input,
        metadata=settings.max_metadata,
    )


FIELD_TABLES = {
    "/v1/responses": FIELDS,
    "/v1/responses over WebSocket": websocket_request.SOCKET,
    "/v1/chat/completions": chat_fields.FIELDS,
    "/v1/messages": messages_fields.FIELDS,
}
ROUTES: tuple[Routes, ...] = (
    _hot,
    compaction.routes,
    kserve.routes,
    websocket.routes,
    containers.routes,
    background.routes,
    _stored,
    explain.routes,
    chat.routes,
    messages.routes,
    conversations.routes,
    _state,
    metrics.routes,
    limits.routes,
    rollout.routes,
    _docs,
    playground.routes,
)
"""The endpoints of each folder, in the order in which the API is described."""

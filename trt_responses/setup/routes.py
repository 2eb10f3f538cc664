"""The routes of a server: each endpoint with the parts that it needs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, WebSocketRoute

from trt_responses.apis.chat import endpoint as chat
from trt_responses.apis.chat import fields as chat_fields
from trt_responses.apis.kserve import endpoints as kserve
from trt_responses.apis.messages import endpoint as messages
from trt_responses.apis.messages import fields as messages_fields
from trt_responses.apis.playground import endpoint as playground
from trt_responses.apis.websocket import endpoint as websocket
from trt_responses.apis.websocket import request as websocket_request
from trt_responses.features.containers.endpoint import ContainerRoutes
from trt_responses.features.containers.files import ContainerFileRoutes
from trt_responses.features.conversations.conversations import Conversations
from trt_responses.features.conversations.endpoint import ConversationRoutes
from trt_responses.features.explain.endpoint import Explain
from trt_responses.features.explain.explain import Explainer
from trt_responses.features.limits.audit import Audit
from trt_responses.features.limits.keys import KeyRing
from trt_responses.features.metrics.endpoint import MetricsPage
from trt_responses.features.rollout.endpoint import EngineActs
from trt_responses.web.admin import AdminActs
from trt_responses.web.docs import Docs, hot_routes
from trt_responses.web.fields import Fields
from trt_responses.web.guard import Guard
from trt_responses.web.health import HealthChecks
from trt_responses.web.models import Models
from trt_responses.web.responses import Responses
from trt_responses.web.shared import Shared
from trt_responses.web.stored import Stored
from trt_responses.web.stream.sse import StreamLimits
from trt_responses.wire.dialect import DIALECTS
from trt_responses.wire.fields import FIELDS
from trt_responses.wire.limits import RequestLimits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from trt_responses.settings import Settings
    from trt_responses.setup.parts import ServerParts
    from trt_responses.web.headers import ReplyHeaders
    from trt_responses.web.shared import Cold


FIELD_TABLES = {
    "/v1/responses": FIELDS,
    "/v1/responses over WebSocket": websocket_request.SOCKET,
    "/v1/chat/completions": chat_fields.FIELDS,
    "/v1/messages": messages_fields.FIELDS,
}


def add_routes(app: FastAPI, server: ServerParts, headers: ReplyHeaders) -> None:
    """Add every endpoint to the app. The order decides between paths that match alike; a path with
    parameters comes after those without."""
    shared = _shared(server, headers)
    made = _made(server, shared)
    raw = [each for each in made if isinstance(each, BaseRoute)]
    cold = [each for each in made if not isinstance(each, BaseRoute)]
    app.state.guard, app.state.reply_headers = shared.guard, headers
    app.state.anybody = Guard(hosts=("*",), origins=("*",), keys=KeyRing())
    app.state.sockets = next((r.endpoint for r in raw if isinstance(r, WebSocketRoute)), None)
    app.state.endpoints = {type(each).__qualname__: each for each in cold}
    app.router.routes += sorted(raw, key=lambda route: "{" in getattr(route, "path", ""))
    for each in cold:
        app.include_router(each.router())


def _shared(server: ServerParts, headers: ReplyHeaders) -> Shared:
    settings, telemetry = server.settings, server.telemetry
    guard = Guard(
        hosts=settings.hosts(),
        origins=settings.allowed_origins,
        keys=server.keys,
        lifecycle=server.lifecycle,
    )
    parts = (
        *(server.names, server.repeats, server.lifecycle, server.health, server.keys),
        *(server.versions, server.exchange, Audit(settings.audit_path), telemetry.statistics),
    )
    return Shared(
        settings=settings,
        parts=server.parts,
        runs=server.runs,
        guard=guard,
        headers=headers,
        limits=_limits(settings),
        stream_limits=StreamLimits(server.keep_alive, settings.max_backlog_bytes),
        about=server.about,
        sleep=server.sleep,
        by_class={type(part): part for part in parts},
    )


def _made(server: ServerParts, shared: Shared) -> list[BaseRoute | Cold]:
    """All endpoints, in the order in which the API is described."""
    settings, telemetry, headers = shared.settings, server.telemetry, shared.headers
    stored = _stored(server, shared)
    responses = Responses(shared, server.background, follows=stored.tail)
    conversations = Conversations(server.parts, most_items=settings.conversation_items)
    audit = shared.of(Audit)
    return [
        *hot_routes(shared, responses, stored),
        *kserve.routes(shared),
        *websocket.routes(shared),
        *_container_routes(server, shared),
        stored,
        Explain(telemetry.explanations, _explainer(server), headers=headers),
        *chat.routes(shared),
        *messages.routes(shared),
        ConversationRoutes(conversations, headers=headers, limits=shared.limits),
        Fields(headers, FIELD_TABLES, lambda: server.parts.engine.limits().ignores),
        Models(server.names, int(time.time()), headers),
        HealthChecks(server.health, headers, about=server.about),
        MetricsPage(telemetry.metrics, headers, key=settings.metrics_key, keys=server.keys),
        AdminActs(server.lifecycle, audit, headers, linger_s=settings.linger_s),
        EngineActs(server.exchange, audit, headers, shared.limits),
        Docs(headers),
        *playground.routes(shared),
    ]


def _stored(server: ServerParts, shared: Shared) -> Stored:
    dialect = server.parts.dialect

    def answer_of(block: bytes) -> str | None:
        ids = dialect.renderer.answer_in(block)
        return None if ids is None else dialect.lexicon.text(ids)

    return Stored(
        server.store,
        server.background,
        headers=shared.headers,
        stream_limits=shared.stream_limits,
        dialect=DIALECTS[server.settings.dialect],
        answer_of=answer_of,
        forget=server.telemetry.explanations.forget,
    )


def _container_routes(server: ServerParts, shared: Shared) -> list[Cold]:
    """The routes of containers; none where no tool has any. Those of all tools are the same."""
    held = next((tool.containers for tool in server.tools if tool.containers is not None), None)
    if held is None:
        return []
    parts = held, shared.headers, shared.limits
    return [ContainerRoutes(*parts), ContainerFileRoutes(*parts)]


def _explainer(server: ServerParts) -> Explainer | None:
    told = server.settings.explain
    if told == "off":
        return None
    cards = server.versions.card_of
    return Explainer(server.parts.dialect, cards, redacts=told == "redacted")


def _limits(settings: Settings) -> RequestLimits:
    return RequestLimits(
        body_bytes=settings.max_body_bytes,
        body_values=settings.max_body_values,
        tools=settings.max_tools,
        input=settings.max_input,
        metadata=settings.max_metadata,
    )

"""The routes of a server: each endpoint with the parts that it needs."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

from starlette.routing import WebSocketRoute

from trt_responses.apis.chat import fields as chat_fields
from trt_responses.apis.chat.endpoint import ChatCompletions
from trt_responses.apis.kserve.control import Control
from trt_responses.apis.kserve.endpoints import KServe
from trt_responses.apis.kserve.inference import Inference
from trt_responses.apis.kserve.model import ServedModel
from trt_responses.apis.messages import fields as messages_fields
from trt_responses.apis.messages.endpoint import Messages, messages_fault
from trt_responses.apis.playground.endpoint import Playground
from trt_responses.apis.websocket.connection import SocketLimits, SocketParts
from trt_responses.apis.websocket.endpoint import Sockets
from trt_responses.apis.websocket.intake import Intake
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
from trt_responses.web.endpoint import Endpoint
from trt_responses.web.fields import Fields
from trt_responses.web.guard import Guard
from trt_responses.web.health import HealthChecks
from trt_responses.web.models import Models
from trt_responses.web.responses import CreateParts, Responses
from trt_responses.web.stored import Stored
from trt_responses.web.stream.sse import StreamLimits
from trt_responses.wire.dialect import DIALECTS
from trt_responses.wire.fields import FIELDS, SOCKET
from trt_responses.wire.limits import RequestLimits

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

    from trt_responses.settings import Settings
    from trt_responses.setup.parts import ServerParts
    from trt_responses.web.framework import HotRoute
    from trt_responses.web.headers import ReplyHeaders


FIELD_TABLES = {
    "/v1/responses": FIELDS,
    "/v1/responses over WebSocket": SOCKET,
    "/v1/chat/completions": chat_fields.FIELDS,
    "/v1/messages": messages_fields.FIELDS,
}


class Cold(Protocol):
    """Endpoints that FastAPI serves."""

    def router(self) -> APIRouter: ...


def add_routes(app: FastAPI, server: ServerParts, headers: ReplyHeaders) -> None:
    """Add every endpoint to the app. The order decides between paths that match alike."""
    settings = server.settings
    guard = Guard(
        hosts=settings.hosts(),
        origins=settings.allowed_origins,
        keys=server.keys,
        lifecycle=server.lifecycle,
    )
    app.state.guard, app.state.reply_headers = guard, headers
    app.state.anybody = Guard(hosts=("*",), origins=("*",), keys=KeyRing())
    stored = _stored(server, headers)
    chat = ChatCompletions(**_create_parts(server, headers))
    app.router.routes += _hot_routes(server, guard, headers, stored, chat)
    app.router.routes.append(_kserve(server, guard, headers).route())
    app.state.sockets = _sockets(server, guard, headers) if settings.websockets else None
    if app.state.sockets is not None:
        app.router.routes.append(WebSocketRoute(Sockets.path, app.state.sockets))
    cold = [*_container_routes(server, headers), *_cold_routes(server, headers, stored, chat)]
    app.state.endpoints = {type(each).__qualname__: each for each in cold}
    for each in cold:
        app.include_router(each.router())


def _create_parts(server: ServerParts, headers: ReplyHeaders) -> CreateParts:
    return {
        "runs": server.runs,
        "repeats": server.repeats,
        "names": server.names,
        "headers": headers,
        "stream_limits": _stream_limits(server),
        "limits": _limits(server.settings),
    }


def _stored(server: ServerParts, headers: ReplyHeaders) -> Stored:
    dialect = server.parts.dialect

    def answer_of(block: bytes) -> str | None:
        ids = dialect.renderer.answer_in(block)
        return None if ids is None else dialect.lexicon.text(ids)

    return Stored(
        server.store,
        server.background,
        headers=headers,
        stream_limits=_stream_limits(server),
        dialect=DIALECTS[server.settings.dialect],
        answer_of=answer_of,
        forget=server.telemetry.explanations.forget,
    )


def _hot_routes(
    server: ServerParts,
    guard: Guard,
    headers: ReplyHeaders,
    stored: Stored,
    chat: ChatCompletions,
) -> list[HotRoute]:
    """The routes that are raw ASGI apps, since a run sends a step at a time through them."""
    create_parts = _create_parts(server, headers)
    responses = Responses(
        **create_parts,
        background=server.background,
        dialect=DIALECTS[server.settings.dialect],
        follows=stored.tail,
    )
    messages = Messages(**create_parts)
    raw = partial(Endpoint, guard=guard, headers=headers)
    return hot_routes(
        server.names,
        create=raw(responses.create),
        count=raw(responses.count),
        compact=raw(responses.compact),
        retrieve=raw(stored.retrieve),
        chat=raw(chat.create),
        message=raw(messages.create, told=messages_fault),
        count_message=raw(messages.count, told=messages_fault),
    )


def _kserve(server: ServerParts, guard: Guard, headers: ReplyHeaders) -> KServe:
    limits = _limits(server.settings)
    audit = Audit(server.settings.audit_path)
    model = ServedModel(server.about()["model"], server.versions)
    return KServe(
        model,
        Inference(
            server.runs,
            model,
            headers=headers,
            stream_limits=_stream_limits(server),
            limits=limits,
        ),
        server.health,
        server.telemetry.statistics,
        about=server.about,
        versions=server.versions,
        exchange=server.exchange,
        control=Control(server.exchange, audit, headers, limits),
        guard=guard,
        keys=server.keys,
        headers=headers,
        limits=limits,
    )


def _container_routes(server: ServerParts, headers: ReplyHeaders) -> list[Cold]:
    """The routes of containers; none where no tool has any. Those of all tools are the same."""
    held = next((tool.containers for tool in server.tools if tool.containers is not None), None)
    if held is None:
        return []
    limits = _limits(server.settings)
    return [ContainerRoutes(held, headers, limits), ContainerFileRoutes(held, headers, limits)]


def _cold_routes(
    server: ServerParts, headers: ReplyHeaders, stored: Stored, chat: ChatCompletions
) -> list[Cold]:
    """The routes that FastAPI serves."""
    settings, telemetry = server.settings, server.telemetry
    conversations = Conversations(server.parts, most_items=settings.conversation_items)
    limits, audit = _limits(settings), Audit(settings.audit_path)
    return [
        stored,
        Explain(telemetry.explanations, _explainer(server), headers=headers),
        chat,
        ConversationRoutes(conversations, headers=headers, limits=limits),
        Fields(headers, FIELD_TABLES, lambda: server.parts.engine.limits().ignores),
        Models(server.names, int(time.time()), headers),
        HealthChecks(server.health, headers, about=server.about),
        MetricsPage(telemetry.metrics, headers, key=settings.metrics_key, keys=server.keys),
        AdminActs(server.lifecycle, audit, headers, linger_s=settings.linger_s),
        EngineActs(server.exchange, audit, headers, limits),
        Docs(headers),
        Playground(headers, is_on=settings.playground),
    ]


def _sockets(server: ServerParts, guard: Guard, headers: ReplyHeaders) -> Sockets:
    settings = server.settings
    parts = SocketParts(
        runs=server.runs,
        store=server.store,
        names=server.names,
        stream_limits=_stream_limits(server),
        limits=_limits(settings),
        socket_limits=SocketLimits(
            life_s=settings.websocket_s,
            running=settings.websocket_running,
            lanes=settings.websocket_lanes,
            memory_bytes=settings.websocket_bytes,
        ),
        intake=Intake(),
        clock_ns=time.monotonic_ns,
        sleep=server.sleep,
    )
    return Sockets(
        parts,
        guard=guard,
        headers=headers,
        lifecycle=server.lifecycle,
        dialect=DIALECTS[settings.dialect],
        most=settings.websockets,
    )


def _explainer(server: ServerParts) -> Explainer | None:
    told = server.settings.explain
    if told == "off":
        return None
    cards = server.versions.card_of
    return Explainer(server.parts.dialect, cards, redacts=told == "redacted")


def _stream_limits(server: ServerParts) -> StreamLimits:
    return StreamLimits(server.keep_alive, server.settings.max_backlog_bytes)


def _limits(settings: Settings) -> RequestLimits:
    return RequestLimits(
        body_bytes=settings.max_body_bytes,
        body_values=settings.max_body_values,
        tools=settings.max_tools,
        input=settings.max_input,
        metadata=settings.max_metadata,
    )

"""The routes of a server: each endpoint with the parts that it needs."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from starlette.routing import WebSocketRoute

from trt_responses.access.audit import Audit
from trt_responses.access.keys import KeyRing
from trt_responses.response.conversations import Conversations
from trt_responses.response.explain.explain import Explainer
from trt_responses.web.admin import AdminActs
from trt_responses.web.chat import ChatCompletions
from trt_responses.web.container_files import ContainerFileRoutes
from trt_responses.web.containers import ContainerRoutes
from trt_responses.web.conversations import ConversationRoutes
from trt_responses.web.docs import Docs, hot_routes
from trt_responses.web.endpoint import Endpoint
from trt_responses.web.engines import EngineActs
from trt_responses.web.explain import Explain
from trt_responses.web.fields import Fields
from trt_responses.web.guard import Guard
from trt_responses.web.health import HealthChecks
from trt_responses.web.kserve.endpoints import KServe
from trt_responses.web.messages import Messages, messages_fault
from trt_responses.web.metrics import MetricsPage
from trt_responses.web.models import Models
from trt_responses.web.playground import Playground
from trt_responses.web.responses import Responses
from trt_responses.web.stored import Stored
from trt_responses.web.stream.sse import StreamLimits
from trt_responses.web.websocket.connection import SocketLimits, SocketParts
from trt_responses.web.websocket.endpoint import Sockets
from trt_responses.wire.dialect import DIALECTS
from trt_responses.wire.limits import RequestLimits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from trt_responses.server_parts import ServerParts
    from trt_responses.settings import Settings
    from trt_responses.web.headers import ReplyHeaders


def add_routes(app: FastAPI, server: ServerParts, headers: ReplyHeaders) -> None:
    settings, runs, keys = server.settings, server.runs, server.keys
    stream_limits = StreamLimits(server.keep_alive, settings.max_backlog_bytes)
    stored = Stored(
        server.store,
        server.background,
        headers=headers,
        stream_limits=stream_limits,
        dialect=DIALECTS[settings.dialect],
        forget=server.explanations.forget,
    )
    responses = Responses(
        runs,
        server.background,
        server.repeats,
        names=server.names,
        headers=headers,
        stream_limits=stream_limits,
        limits=_limits(settings),
        dialect=DIALECTS[settings.dialect],
        follows=stored.tail,
    )
    chat = ChatCompletions(
        runs,
        server.repeats,
        names=server.names,
        headers=headers,
        stream_limits=stream_limits,
        limits=_limits(settings),
    )
    messages = Messages(
        runs,
        server.repeats,
        names=server.names,
        headers=headers,
        stream_limits=stream_limits,
        limits=_limits(settings),
    )
    guard = Guard(
        hosts=settings.hosts(),
        origins=settings.allowed_origins,
        keys=keys,
        lifecycle=server.lifecycle,
    )
    app.state.guard, app.state.reply_headers = guard, headers
    app.state.anybody = Guard(hosts=("*",), origins=("*",), keys=KeyRing())
    raw = partial(Endpoint, guard=guard, headers=headers)
    app.router.routes += hot_routes(
        server.names,
        create=raw(responses.create),
        count=raw(responses.count),
        compact=raw(responses.compact),
        retrieve=raw(stored.retrieve),
        chat=raw(chat.create),
        message=raw(messages.create, told=messages_fault),
        count_message=raw(messages.count, told=messages_fault),
    )
    kserve = KServe(
        runs,
        server.health,
        server.statistics,
        about=server.about,
        versions=server.versions,
        exchange=server.exchange,
        guard=guard,
        keys=keys,
        headers=headers,
        stream_limits=stream_limits,
        limits=_limits(settings),
    )
    app.router.routes.append(kserve.route())
    app.state.sockets = _sockets(server, guard, headers) if settings.websockets else None
    if app.state.sockets is not None:
        app.router.routes.append(WebSocketRoute(Sockets.path, app.state.sockets))
    stores = [tool.containers for tool in server.tools if tool.containers is not None]
    for containers in stores[:1]:  # those of all tools are the same
        routes = ContainerRoutes(containers, headers, _limits(settings))
        app.include_router(routes.router())
        of_files = ContainerFileRoutes(containers, headers, _limits(settings))
        app.include_router(of_files.router())
    for cold in (
        stored,
        Explain(server.explanations, _explainer(server), headers=headers),
        chat,
        ConversationRoutes(
            Conversations(server.parts, runs.writers, most_items=settings.conversation_items),
            headers=headers,
            limits=_limits(settings),
        ),
        Fields(headers, lambda: server.parts.engine.limits().ignores),
        Models(server.names, int(time.time()), headers),
        HealthChecks(server.health, headers, about=server.about),
        MetricsPage(server.metrics, headers, key=settings.metrics_key, keys=keys),
        AdminActs(
            server.lifecycle, Audit(settings.audit_path), headers, linger_s=settings.linger_s
        ),
        EngineActs(server.exchange, Audit(settings.audit_path), headers, _limits(settings)),
        Docs(headers),
        Playground(headers, is_on=settings.playground),
    ):
        app.include_router(cold.router())


def _sockets(server: ServerParts, guard: Guard, headers: ReplyHeaders) -> Sockets:
    settings = server.settings
    parts = SocketParts(
        runs=server.runs,
        store=server.store,
        names=server.names,
        stream_limits=StreamLimits(server.keep_alive, settings.max_backlog_bytes),
        limits=_limits(settings),
        socket_limits=SocketLimits(
            life_s=settings.websocket_s,
            running=settings.websocket_running,
            lanes=settings.websocket_lanes,
            memory_bytes=settings.websocket_bytes,
        ),
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


def _limits(settings: Settings) -> RequestLimits:
    return RequestLimits(
        body_bytes=settings.max_body_bytes,
        body_values=settings.max_body_values,
        tools=settings.max_tools,
        input=settings.max_input,
        metadata=settings.max_metadata,
    )

"""The routes of a server: those of the core, and those that each folder brings."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, WebSocketRoute

from trt_responses.accept.model_names import ModelNames
from trt_responses.apis.chat.endpoint import ChatCompletions
from trt_responses.apis.kserve.control import Control
from trt_responses.apis.kserve.endpoints import KServe
from trt_responses.apis.kserve.inference import Inference
from trt_responses.apis.kserve.model import ServedModel
from trt_responses.apis.messages.endpoint import Messages, messages_fault
from trt_responses.apis.playground.endpoint import Playground
from trt_responses.apis.websocket.connection import SocketLimits, SocketParts
from trt_responses.apis.websocket.endpoint import Sockets
from trt_responses.apis.websocket.intake import Intake
from trt_responses.features.background import endpoint as background
from trt_responses.features.background.endpoint import BackgroundJobs
from trt_responses.features.containers import endpoint as containers
from trt_responses.features.conversations import endpoint as conversations
from trt_responses.features.explain import endpoint as explain
from trt_responses.features.limits import endpoint as limits
from trt_responses.features.limits.audit import Audit
from trt_responses.features.limits.keys import KeyRing
from trt_responses.features.metrics import endpoint as metrics
from trt_responses.features.metrics.statistics import Statistics
from trt_responses.features.rollout import endpoint as rollout
from trt_responses.features.rollout.exchange import Exchange
from trt_responses.features.rollout.versions import Versions
from trt_responses.run.health import Health
from trt_responses.run.lifecycle import Lifecycle
from trt_responses.web.docs import Docs, hot_routes
from trt_responses.web.endpoint import Endpoint
from trt_responses.web.fields import Fields
from trt_responses.web.guard import Guard
from trt_responses.web.health import HealthChecks
from trt_responses.web.models import Models
from trt_responses.web.responses import Responses
from trt_responses.web.shared import Shared
from trt_responses.web.stored import Stored
from trt_responses.web.stream.sse import StreamLimits
from trt_responses.wire.dialect import DIALECTS
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
        sleep=server.sleep,
        jobs=jobs,
        on_delete=(server.background.drop, telemetry.explanations.forget),
        by_class={type(part): part for part in parts},
    )


def _hot(shared: Shared) -> list[HotRoute]:
    """The routes that are raw ASGI apps, since a run sends a step at a time through them."""
    responses, stored = Responses(shared), Stored(shared)
    chat, messages = ChatCompletions(shared), Messages(shared)
    raw = partial(Endpoint, guard=shared.guard, headers=shared.headers)
    return hot_routes(
        shared.of(ModelNames),
        create=raw(responses.create),
        count=raw(responses.count),
        compact=raw(responses.compact),
        retrieve=raw(stored.retrieve),
        chat=raw(chat.create),
        message=raw(messages.create, told=messages_fault),
        count_message=raw(messages.count, told=messages_fault),
    )


def _kserve(shared: Shared) -> list[BaseRoute]:
    audit, versions = shared.of(Audit), shared.of(Versions)
    exchange, headers, limits = shared.of(Exchange), shared.headers, shared.limits
    model = ServedModel(shared.about()["model"], versions)
    served = KServe(
        model,
        Inference(
            shared.runs,
            model,
            headers=headers,
            stream_limits=shared.stream_limits,
            limits=limits,
        ),
        shared.of(Health),
        shared.of(Statistics),
        about=shared.about,
        versions=versions,
        exchange=exchange,
        control=Control(exchange, audit, headers, limits),
        guard=shared.guard,
        keys=shared.of(KeyRing),
        headers=headers,
        limits=limits,
    )
    return [served.route()]


def _sockets(shared: Shared) -> list[BaseRoute]:
    settings = shared.settings
    if not settings.websockets:
        return []
    parts = SocketParts(
        runs=shared.runs,
        store=shared.parts.store,
        names=shared.of(ModelNames),
        stream_limits=shared.stream_limits,
        limits=shared.limits,
        socket_limits=SocketLimits(
            life_s=settings.websocket_s,
            running=settings.websocket_running,
            lanes=settings.websocket_lanes,
            memory_bytes=settings.websocket_bytes,
        ),
        intake=Intake(),
        clock_ns=time.monotonic_ns,
        sleep=shared.sleep,
    )
    sockets = Sockets(
        parts,
        guard=shared.guard,
        headers=shared.headers,
        lifecycle=shared.of(Lifecycle),
        dialect=DIALECTS[settings.dialect],
        most=settings.websockets,
    )
    return [WebSocketRoute(Sockets.path, sockets)]


def _stored(shared: Shared) -> list[Cold]:
    return [Stored(shared)]


def _chat(shared: Shared) -> list[Cold]:
    return [ChatCompletions(shared)]


def _state(shared: Shared) -> list[Cold]:
    headers, engine = shared.headers, shared.parts.engine
    return [
        Fields(headers, lambda: engine.limits().ignores),
        Models(shared.of(ModelNames), int(time.time()), headers),
        HealthChecks(shared.of(Health), headers, about=shared.about),
    ]


def _docs(shared: Shared) -> list[Cold]:
    return [Docs(shared.headers)]


def _playground(shared: Shared) -> list[Cold]:
    return [Playground(shared.headers, is_on=shared.settings.playground)]


def _limits(settings: Settings) -> RequestLimits:
    return RequestLimits(
        body_bytes=settings.max_body_bytes,
        body_values=settings.max_body_values,
        tools=settings.max_tools,
        input=settings.max_input,
        metadata=settings.max_metadata,
    )


ROUTES: tuple[Routes, ...] = (
    _hot,
    _kserve,
    _sockets,
    containers.routes,
    background.routes,
    _stored,
    explain.routes,
    _chat,
    conversations.routes,
    _state,
    metrics.routes,
    limits.routes,
    rollout.routes,
    _docs,
    _playground,
)
"""The endpoints of each folder, in the order in which the API is described."""

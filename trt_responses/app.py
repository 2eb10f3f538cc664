"""The app: builds the parts from the settings and joins them. Only this file knows every room."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from starlette.routing import WebSocketRoute

from trt_responses import __version__, backends
from trt_responses.access.admission import Admission, Bounds
from trt_responses.access.audit import Audit
from trt_responses.access.key_file import WatchedKeys
from trt_responses.access.keys import KeyFault, KeyRing, OwnerLimits
from trt_responses.errors import ServerShutdown, StartupError
from trt_responses.frozen import dataclass
from trt_responses.harmony.read.logprobs import ScoredReader
from trt_responses.harmony.read.reader import Reader, Tables
from trt_responses.harmony.stored_text import Spelled
from trt_responses.harmony.write.render import Renderer
from trt_responses.response.background.background import Background
from trt_responses.response.conversations import Conversations
from trt_responses.response.explain import Explainer
from trt_responses.response.health import Health
from trt_responses.response.included import Inclusion
from trt_responses.response.lifecycle import Lifecycle
from trt_responses.response.parts import Parts
from trt_responses.response.runs import Runs
from trt_responses.response.seal.sealer import Sealer, key_of, shared_keys
from trt_responses.response.stall import StallWatch
from trt_responses.response.steering.steering import Steering
from trt_responses.settings import Settings
from trt_responses.telemetry.explanations import Explanations
from trt_responses.telemetry.log import RequestLog
from trt_responses.telemetry.metrics import Metrics
from trt_responses.telemetry.statistics import Statistics
from trt_responses.telemetry.token_gaps import TokenGaps
from trt_responses.telemetry.traces import Traces, traces_to
from trt_responses.tokens.tokenise import Tokeniser
from trt_responses.web.admin import AdminActs
from trt_responses.web.chat import ChatCompletions
from trt_responses.web.containers import ContainerRoutes
from trt_responses.web.conversations import ConversationRoutes
from trt_responses.web.docs import Docs, hot_routes
from trt_responses.web.endpoint import Endpoint
from trt_responses.web.explain import Explain
from trt_responses.web.fields import Fields
from trt_responses.web.framework import App
from trt_responses.web.guard import Guard
from trt_responses.web.headers import Origins, ReplyHeaders
from trt_responses.web.health import HealthChecks
from trt_responses.web.idempotency import Repeats
from trt_responses.web.kserve.endpoints import KServe
from trt_responses.web.messages import Messages, messages_fault
from trt_responses.web.metrics import MetricsPage
from trt_responses.web.middleware import Middleware
from trt_responses.web.models import ModelNames, Models
from trt_responses.web.playground import Playground
from trt_responses.web.responses import Responses
from trt_responses.web.stored import Stored
from trt_responses.web.stream.keepalive import KeepAlive
from trt_responses.web.stream.sse import StreamLimits
from trt_responses.web.websocket.connection import SocketLimits, SocketParts
from trt_responses.web.websocket.endpoint import Sockets
from trt_responses.wire.dialect import DIALECTS
from trt_responses.wire.limits import RequestLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from fastapi import FastAPI

    from trt_responses.engine.base import Engine
    from trt_responses.prepare.shelf import Selection
    from trt_responses.response.run import Listener
    from trt_responses.store.base import Store
    from trt_responses.tokens.vocabulary import Vocabulary
    from trt_responses.tools.base import Tool

logger = logging.getLogger(__name__)

ENGINE_STOP_S = 5.0
"""What an engine gets for its end, when every response has had its own."""
CARD_TOLD = ("kind", "name", "version", "weight_type", "limits", "libraries", "hardware", "chain")
"""What of an engine's card is told with an explanation: what may make two servers differ."""


def create_app(
    settings: Settings | None = None,
    *,
    engine: Engine | None = None,
    store: Store | None = None,
    tools: Sequence[Tool] | None = None,
    engine_of: Callable[[Selection, Settings], Engine] = backends.engine_of,
    elsewhere: Callable[[int], int] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> FastAPI:
    """The server as an ASGI app. An engine, a store and tools that are passed in are started and
    stopped with it, as those named in the settings are. `engine_of` makes the engine that the
    settings name. `elsewhere` notes how many responses the engine makes for this app, and says how
    many it makes for others; `sleep` is awaited for every wait of its own."""
    settings = settings or Settings.from_environment()
    server = _server(settings, engine, store, tools, engine_of, elsewhere, sleep)
    app = App(
        title="trt_responses",
        version=__version__,
        description="The OpenAI Responses API for gpt-oss style models.",
        lifespan=_lifespan(server),
    )
    app.state.runs, app.state.model = server.runs, server.model
    app.state.metrics = server.metrics
    app.state.health, app.state.lifecycle = server.health, server.lifecycle
    origins = Origins(server.settings.allowed_origins)
    headers = ReplyHeaders(time.monotonic_ns, origins, server.lifecycle)
    _add_routes(app, server, headers)
    app.add_middleware(
        Middleware,
        clock_ns=time.monotonic_ns,
        mint=mint,
        origins=origins,
        headers=headers,
        listeners=(server.metrics, server.request_log),
    )
    return app


@dataclass(frozen=True, slots=True)
class _Server:
    """The parts that the endpoints and the app's life share."""

    settings: Settings
    engine: Engine
    model: str
    names: ModelNames
    about: Mapping[str, Any]
    """What is served, as the health route tells it."""
    card: Mapping[str, Any]
    """What the engine's card says of it."""
    store: Store
    tools: Sequence[Tool]
    keys: KeyRing
    watched: WatchedKeys | None
    metrics: Metrics
    request_log: RequestLog
    traces: Traces | None
    statistics: Statistics
    token_gaps: TokenGaps
    explanations: Explanations
    lifecycle: Lifecycle
    parts: Parts
    runs: Runs
    stall_watch: StallWatch
    health: Health
    background: Background
    keep_alive: KeepAlive
    repeats: Repeats
    sleep: Callable[[float], Awaitable[None]]


def _server(
    settings: Settings,
    engine: Engine | None,
    store: Store | None,
    tools: Sequence[Tool] | None,
    engine_of: Callable[[Selection, Settings], Engine],
    elsewhere: Callable[[int], int] | None,
    sleep: Callable[[float], Awaitable[None]],
) -> _Server:
    model = settings.model or settings.engine or "demo"
    kind, engine_version = "given", ""  # by the program that embeds this one
    card: dict[str, Any] = {"kind": kind}
    if engine is None and settings.triton is not None:
        engine, kind = backends.triton_at(settings.triton), "triton"
        model = settings.model or settings.triton.partition("/")[2]
        card = {"kind": kind, "name": settings.triton}
    if engine is None:
        selection = backends.chosen_engine(settings)
        logger.info("%s", selection.reason)
        model = settings.model or selection.card.name
        engine = engine_of(selection, settings)
        kind, engine_version = selection.card.kind, selection.card.version
        card = {name: told for name, told in asdict(selection.card).items() if name in CARD_TOLD}
    if tools is None:
        tools = backends.tools_of(settings)
    if store is None:
        store = backends.store_of(settings, _spelled())
    keys = _keys(settings)
    watched = _watched(settings, keys, sleep)
    metrics = Metrics(
        model=model,
        engine=kind,
        engine_version=engine_version,
        version=__version__,
        live_tokens=lambda: sum(run.tokens for run in runs.progress()),
    )
    token_gaps = TokenGaps(metrics.gap_s, lambda: runs.progress(), time.monotonic_ns)
    statistics, lifecycle = Statistics(), Lifecycle(time.monotonic)
    explanations = Explanations(settings.explain_bytes)
    request_log = RequestLog()
    traces = (
        traces_to(settings.otlp_endpoint, __version__, settings.otlp_names)
        if settings.otlp_endpoint
        else None
    )
    listeners: list[Listener] = [
        *([traces] if traces else []),
        request_log,
        metrics,
        token_gaps,
        statistics,
    ]
    if settings.explain != "off" and settings.explain_bytes:
        listeners.append(explanations)
    admission = _admission(settings, engine, keys, elsewhere)
    stall_watch = StallWatch(
        engine,
        admission,
        lifecycle,
        fail_begun=lambda error: runs.fail_begun(error),
        stall_s=settings.stall_s,
        clock_ns=time.monotonic_ns,
        sleep=sleep,
    )
    listeners.append(stall_watch)
    parts = _parts(settings, engine, store, tools, model, admission, listeners)
    runs = Runs(parts, lifecycle)
    health = Health(lifecycle, engine, admission, stall_watch, clock_ns=time.monotonic_ns)
    _read_state(metrics, health, watched)
    metrics.show_as(settings.metrics_names)
    return _Server(
        settings=settings,
        engine=engine,
        model=model,
        names=ModelNames(model, settings.model_aliases, settings.any_model),
        about={
            "model": model,
            "version": __version__,
            "engine": {"kind": kind, "version": engine_version},
        },
        card=card,
        store=store,
        tools=tools,
        keys=keys,
        watched=watched,
        metrics=metrics,
        request_log=request_log,
        traces=traces,
        statistics=statistics,
        token_gaps=token_gaps,
        explanations=explanations,
        lifecycle=lifecycle,
        parts=parts,
        runs=runs,
        stall_watch=stall_watch,
        health=health,
        background=Background(runs, store, max_per_owner=settings.max_background, sleep=sleep),
        keep_alive=KeepAlive(settings.keep_alive_s, settings.keep_alive_event_s, sleep),
        repeats=Repeats(
            max_keys=settings.idempotency_keys,
            ttl_s=settings.idempotency_ttl_s,
            clock_s=time.monotonic,
        ),
        sleep=sleep,
    )


def _add_routes(app: FastAPI, server: _Server, headers: ReplyHeaders) -> None:
    settings, runs, keys = server.settings, server.runs, server.keys
    stream_limits = StreamLimits(server.keep_alive, settings.max_backlog_bytes)
    responses = Responses(
        runs,
        server.background,
        server.repeats,
        names=server.names,
        headers=headers,
        stream_limits=stream_limits,
        limits=_limits(settings),
        dialect=DIALECTS[settings.dialect],
    )
    chat = ChatCompletions(
        runs,
        names=server.names,
        headers=headers,
        stream_limits=stream_limits,
        limits=_limits(settings),
    )
    messages = Messages(
        runs,
        names=server.names,
        headers=headers,
        stream_limits=stream_limits,
        limits=_limits(settings),
    )
    stored = Stored(
        server.store,
        server.background,
        headers=headers,
        stream_limits=stream_limits,
        dialect=DIALECTS[settings.dialect],
        sleep=server.sleep,
        forget=server.explanations.forget,
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
    for tool in server.tools:
        if tool.containers is not None:
            routes = ContainerRoutes(tool.containers, headers, _limits(settings))
            app.include_router(routes.router())
    for cold in (
        stored,
        Explain(server.explanations, _explainer(settings, server.card), headers=headers),
        chat,
        ConversationRoutes(
            Conversations(server.parts, runs.writers, most_items=settings.conversation_items),
            headers=headers,
            limits=_limits(settings),
        ),
        Fields(headers),
        Models(server.names, int(time.time()), headers),
        HealthChecks(server.health, headers, about=server.about),
        MetricsPage(server.metrics, headers, key=settings.metrics_key, keys=keys),
        AdminActs(
            server.lifecycle, Audit(settings.audit_path), headers, linger_s=settings.linger_s
        ),
        Docs(headers),
        Playground(headers, is_on=settings.playground),
    ):
        app.include_router(cold.router())


def mint(prefix: str) -> str:
    """A fresh id in the API's form."""
    return f"{prefix}_{secrets.token_hex(24)}"


@cache
def _language() -> tuple[Vocabulary, Tokeniser, Tables]:
    """The parts that know the vocabulary, made once however many apps a process has."""
    vocabulary = backends.vocabulary()
    return vocabulary, Tokeniser(vocabulary), Tables.of(vocabulary)


@cache
def _spelled() -> Spelled:
    vocabulary, _, tables = _language()
    return Spelled(vocabulary, tables.pieces)


def _read_state(metrics: Metrics, health: Health, watched: WatchedKeys | None) -> None:
    """What is not counted but asked for, when the metrics are read."""
    for name, help_text, read in (
        (
            "responses_running",
            "Responses being made, as many as the engine has places for.",
            lambda: health().running,
        ),
        (
            "responses_waiting",
            "Responses accepted beyond the engine's places.",
            lambda: health().waiting,
        ),
        ("engine_alive", "Whether it is, or can recover.", lambda: health().engine_alive),
        ("engine_ready", "Whether it takes work now.", lambda: health().engine_ready),
        ("ready", "Whether the server should be sent work.", lambda: health().ready),
        ("draining", "Whether the server is being stopped.", lambda: health().state == "draining"),
    ):
        metrics.reading(name, help_text, read)
    if watched is not None:
        metrics.reading("keys", "Keys of the file that are known.", lambda: len(watched))
        metrics.reading(
            "keys_file_fault",
            "Whether the file as it is cannot be used, and older keys are.",
            lambda: watched.fault is not None,
        )


def _parts(
    settings: Settings,
    engine: Engine,
    store: Store,
    tools: Sequence[Tool],
    model: str,
    admission: Admission,
    listeners: Sequence[Listener],
) -> Parts:
    vocabulary, tokeniser, tables = _language()
    return Parts(
        engine=engine,
        store=store,
        renderer=Renderer(vocabulary, tokeniser),
        new_reader=partial(Reader, tables),
        new_scored_reader=partial(ScoredReader, tables),
        steering=Steering(vocabulary, schema_s=settings.schema_s),
        model=model,
        identity=settings.identity,
        knowledge_cutoff=settings.knowledge_cutoff,
        admission=admission,
        sealer=_sealer(settings),
        inclusion=Inclusion(vocabulary, tells_messages=settings.explain == "full"),
        mint=mint,
        today=lambda: settings.date or datetime.now(UTC).strftime("%Y-%m-%d"),
        clock_s=time.time,
        clock_ns=time.monotonic_ns,
        listeners=listeners,
        note_media=settings.note_images,
        max_calls=settings.max_calls,
        tools={tool.kind: tool for tool in tools},
        max_tool_calls=settings.max_tool_calls,
        thought_summaries=settings.thought_summaries,
    )


def _sockets(server: _Server, guard: Guard, headers: ReplyHeaders) -> Sockets:
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


def _explainer(settings: Settings, card: Mapping[str, Any]) -> Explainer | None:
    if settings.explain == "off":
        return None
    vocabulary, _, tables = _language()
    return Explainer(vocabulary, tables, card, redacts=settings.explain == "redacted")


def _keys(settings: Settings) -> KeyRing:
    half = settings.max_waiting // 2 if settings.asks_for_keys else None
    waiting = half if settings.owner_waiting is None else settings.owner_waiting
    return KeyRing(
        settings.owners(),
        from_file=settings.keys_file is not None,
        admin_key=settings.admin_key,
        limits=OwnerLimits(
            running=settings.owner_running,
            waiting=waiting,
            requests_per_minute=settings.owner_requests_per_minute,
            tokens_per_minute=settings.owner_tokens_per_minute,
        ),
    )


def _admission(
    settings: Settings,
    engine: Engine,
    keys: KeyRing,
    elsewhere: Callable[[int], int] | None,
) -> Admission:
    def places() -> int:
        """Of the engine, now; nobody is sent to one that is mending itself."""
        health = engine.health()
        if health.alive and not health.ready:
            return 0
        return min(settings.max_running or sys.maxsize, engine.limits().max_batch)

    return Admission(
        places,
        Bounds(waiting=settings.max_waiting, waiting_tokens=settings.max_waiting_tokens),
        limits_of=keys.limits_of,
        clock_s=time.monotonic,
        elsewhere=elsewhere,
    )


def _limits(settings: Settings) -> RequestLimits:
    return RequestLimits(
        body_bytes=settings.max_body_bytes,
        body_values=settings.max_body_values,
        tools=settings.max_tools,
        input=settings.max_input,
        metadata=settings.max_metadata,
    )


def _watched(
    settings: Settings, keys: KeyRing, sleep: Callable[[float], Awaitable[None]]
) -> WatchedKeys | None:
    """The file of keys, loaded; one that cannot be used stops the start."""
    if settings.keys_file is None:
        return None
    watched = WatchedKeys(settings.keys_file, keys, Audit(settings.audit_path), sleep)
    try:
        watched.load()
    except KeyFault as fault:
        raise StartupError(
            f"The file of keys {settings.keys_file} cannot be used: {fault}; `trt-responses keys "
            "new OWNER` makes one."
        ) from None
    return watched


def _sealer(settings: Settings) -> Sealer:
    """The sealer of reasoning: with the shared keys of the settings, or with a key of this server's
    own in its data directory, made when it is first needed."""
    path = settings.data_dir / "seal.key"
    if settings.seal_keys:
        shared = shared_keys(settings.seal_keys)
        return Sealer(lambda: shared)
    if path.exists():
        key_of(path)  # one that cannot be used stops the start
    return Sealer(lambda: [key_of(path)])


def _lifespan(server: _Server) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    drain_s = server.settings.drain_s
    lives: list[Callable[[], AbstractAsyncContextManager[None]]] = [
        *([server.watched.life] if server.watched else []),
        server.keep_alive.life,
        server.repeats.life,
        *([server.traces.life] if server.traces else []),
        server.token_gaps.life,
        server.stall_watch.life,
        partial(server.background.life, drain_s),
    ]

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        await _start(server)
        # What is loaded by now lives as long as the process: a full collection need not walk it.
        gc.collect()
        gc.freeze()
        try:
            async with AsyncExitStack() as stack:
                for part in lives:
                    await stack.enter_async_context(part())
                server.lifecycle.ready()
                yield
                server.lifecycle.drain(0)
        finally:
            server.runs.fail_all(ServerShutdown())
            await _stop_tools(server)
            await server.engine.stop(min(drain_s, ENGINE_STOP_S))
            await server.store.stop()
            gc.unfreeze()  # a process may live on, and make another app

    return life


async def _start(server: _Server) -> None:
    """Open the history and load the engine, or leave nothing behind."""
    lifecycle = server.lifecycle
    lifecycle.start()
    try:
        lifecycle.step("opening the history")
        await server.store.start()
        for tool in server.tools:
            lifecycle.step(f"preparing the tool {tool.name}")
            await tool.start()
        lifecycle.step("loading the engine")
        await server.engine.start()
    except StartupError as error:
        lifecycle.fail(str(error))
        await _stop_tools(server)
        await server.store.stop()
        raise
    except asyncio.CancelledError:  # it is to be stopped before it has started
        await server.engine.stop(0)
        await _stop_tools(server)
        await server.store.stop()
        raise


async def _stop_tools(server: _Server) -> None:
    for tool in server.tools:
        await tool.stop()

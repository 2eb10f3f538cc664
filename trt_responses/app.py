"""Builds the parts and joins them; the only file that knows every other."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.routing import Route

from trt_responses import __version__
from trt_responses.engine.llamacpp import LlamaCppEngine
from trt_responses.engine.llamacpp_process import spare_cores
from trt_responses.engine.tensorrt import TensorRtEngine
from trt_responses.engine.tensorrt_cuda import Cuda, runtime
from trt_responses.engine.tensorrt_onnx import OnnxExecutor
from trt_responses.engine.tensorrt_rtx import RtxExecutor
from trt_responses.engine.trtllm import TrtLlmEngine
from trt_responses.errors import ApiError, StartupError
from trt_responses.harmony import vocabulary as vocabularies
from trt_responses.harmony.read import Reader, Tables
from trt_responses.harmony.render import Renderer
from trt_responses.harmony.scored import ScoredReader
from trt_responses.harmony.tokenise import Tokeniser
from trt_responses.prepare import experts, shelf
from trt_responses.prepare.build import MODEL
from trt_responses.prepare.card import this_machine
from trt_responses.prepare.chain import GRAPH, chain_of
from trt_responses.prepare.stand_ins import StandIns
from trt_responses.prepare.trtllm_plan import served
from trt_responses.response.background import Background
from trt_responses.response.runs import Parts, Runs
from trt_responses.response.seal import Sealer, key_of, shared_keys
from trt_responses.response.steering import Steering
from trt_responses.settings import PREFIX, Settings
from trt_responses.store.bounds import Bounds
from trt_responses.store.memory import MemoryStore
from trt_responses.store.sqlite import SqliteStore
from trt_responses.telemetry import RunLog
from trt_responses.web.docs import Docs, openapi
from trt_responses.web.endpoint import Endpoint, Headers, Unrouted
from trt_responses.web.fields import Fields
from trt_responses.web.guard import BodySize, Guard
from trt_responses.web.health import HealthChecks
from trt_responses.web.idempotency import Repeats
from trt_responses.web.keepalive import KeepAlive
from trt_responses.web.middleware import Arrival
from trt_responses.web.models import Models
from trt_responses.web.responses import Responses
from trt_responses.web.sse import Terms
from trt_responses.web.stored import Stored
from trt_responses.wire.bounds import Bounds as RequestBounds
from trt_responses.wire.dialect import DIALECTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from trt_responses.engine.base import Engine
    from trt_responses.engine.tensorrt_executor import Executor
    from trt_responses.harmony.vocabulary import Vocabulary
    from trt_responses.prepare.card import Card
    from trt_responses.prepare.safetensors import Array
    from trt_responses.store.base import Store
    from trt_responses.web.endpoint import Answer

logger = logging.getLogger(__name__)


def create_app(
    settings: Settings | None = None,
    *,
    engine: Engine | None = None,
    store: Store | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> FastAPI:
    """The server as an ASGI app. An engine or a store that is passed in is started and stopped
    with it, as the ones named in the settings are. `sleep` is what it waits by."""
    settings = settings or Settings.from_environment()
    model = settings.model or settings.engine or "demo"
    if engine is None:
        selection = chosen_engine(settings)
        logger.info("%s", selection.reason)
        model = settings.model or selection.card.name
        engine = engine_of(selection, settings)
    if store is None:
        store = store_of(settings)
    runs = Runs(_parts(settings, engine, store, model))
    background = Background(runs, store, max_per_owner=settings.max_background, sleep=sleep)
    keep_alive = KeepAlive(settings.keep_alive_s, sleep)
    app = _App(
        title="trt_responses",
        version=__version__,
        lifespan=_lifespan(settings, engine, store, runs, background, keep_alive),
    )
    app.state.runs, app.state.model, app.state.startup_error = runs, model, None
    app.state.engine = engine
    app.router.redirect_slashes = False  # a redirect would go where an unchecked Host says
    terms = Terms(keep_alive, settings.max_backlog_bytes)
    stored = Stored(
        store,
        background,
        headers=Headers(time.monotonic_ns),
        terms=terms,
        dialect=DIALECTS[settings.dialect],
        sleep=sleep,
    )
    app.router.routes[:] = _routes(settings, engine, runs, background, stored, terms, model)
    app.openapi = partial(openapi, model)  # type: ignore[method-assign]  # FastAPI's own way to replace it
    app.add_middleware(Unrouted, headers=Headers(time.monotonic_ns))
    app.add_middleware(Arrival, clock_ns=time.monotonic_ns, mint=mint)
    return app


class _App(FastAPI):
    """FastAPI's, with nothing between a stream and the server's `send` but what was added."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self.middleware_stack is None:
            await super().__call__(scope, receive, send)
        else:  # its telemetry, asked for at each request, would wrap `send`
            scope["app"] = self
            await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = self.router
        for layer, args, kwargs in reversed(self.user_middleware):
            app = layer(app, *args, **kwargs)
        return app


def chosen_engine(settings: Settings) -> shelf.Selection:
    """The prepared engine that the settings ask for, once its card agrees with this machine."""
    selection = shelf.select(settings.engines_dir, settings.engine)
    return shelf.serve_ready(selection, this_machine())


def engine_of(selection: shelf.Selection, settings: Settings) -> Engine:
    """The engine that serves a prepared directory of its kind."""
    directory, card = selection.directory, selection.card
    if card.kind == "trtllm":
        given = served(directory, card)
        return trtllm_over(given.checkpoint, given.arguments, given.variables)
    if card.kind in ("tensorrt", "onnx"):
        return tensorrt_over(directory, card, settings)
    return llamacpp_over(directory / MODEL, settings)


def trtllm_over(
    checkpoint: Path, arguments: Mapping[str, object], variables: Mapping[str, str]
) -> Engine:
    """TensorRT-LLM's, over a checkpoint with the arguments of a plan."""
    return TrtLlmEngine(checkpoint, arguments, variables=variables)


def llamacpp_over(model_path: Path, settings: Settings) -> Engine:
    """The embedded one, over a model file."""
    return LlamaCppEngine(
        model_path,
        context_tokens=settings.context_tokens,
        slots=settings.slots,
        threads=settings.threads,
        spelled=StandIns(_language()[0]),
    )


def tensorrt_over(directory: Path, card: Card, settings: Settings) -> Engine:
    """Compiled plans on an RTX GPU, or their graph on the CPU."""
    chain = chain_of(card)
    make = partial(_onnx, directory, card, settings.threads or spare_cores())
    if card.kind == "tensorrt":
        make = partial(_rtx, directory, card)
    return TensorRtEngine(
        make, _language()[0], slots=chain.slots, context_tokens=chain.length, top=chain.top
    )


def _onnx(directory: Path, card: Card, threads: int) -> Executor:
    from trt_responses.prepare.graph_weights import dense  # needs the extra

    chain, folder = chain_of(card), directory / GRAPH
    weights = experts.opened(folder, card.architecture)

    def expert(name: str) -> Array:
        _, layer, projection = name.split(".")
        return dense(weights, int(layer), projection, chain.element)

    names = [link.name for link in chain.links]
    return OnnxExecutor(
        folder, names, expert, slots=chain.slots, chunk=chain.chunk, threads=threads
    )


def _rtx(directory: Path, card: Card) -> Executor:
    """The plans of the GPU's family. What the runtime compiles for it is kept beside them."""
    chain, cuda = chain_of(card), Cuda(runtime())
    target = cuda.target()
    return RtxExecutor(
        directory / chain.for_target(target).folder,
        [link.name for link in chain.links],
        slots=chain.slots,
        chunk=chain.chunk,
        cuda=cuda,
        caches=directory.with_name(f"{directory.name}.cache") / target,
    )


def store_of(settings: Settings) -> Store:
    """The store that the settings name."""
    bounds = Bounds(
        max_bytes=settings.store_bytes,
        max_records=settings.store_records,
        max_age_s=settings.store_age_s,
        max_frame_bytes=settings.store_frame_bytes,
        lease_s=settings.lease_s,
    )
    url = settings.store or "memory://"
    match url.partition("://")[0]:
        case "memory":
            return MemoryStore(bounds)
        case "sqlite":
            path = Path(url.removeprefix("sqlite://").removeprefix("/"))
            return SqliteStore(path, bounds, synchronous=settings.store_synchronous)
        case "redis" | "rediss" | "unix":
            return _redis(url, bounds)
        case other:
            raise StartupError(
                f"{PREFIX}STORE: expected memory://, sqlite:///path or redis://host, got {other!r}."
            )


def _redis(url: str, bounds: Bounds) -> Store:
    try:
        from trt_responses.store.redis import RedisStore
    except ModuleNotFoundError:
        raise StartupError(
            f"{PREFIX}STORE: a Redis history needs the extra: pip install 'trt-responses[redis]'."
        ) from None
    return RedisStore(url, bounds)


def mint(prefix: str) -> str:
    """A fresh id in the API's form."""
    return f"{prefix}_{secrets.token_hex(24)}"


@cache
def _language() -> tuple[Vocabulary, Tokeniser, Tables]:
    """Loaded once, however many apps a process has: a third of a second each."""
    vocabulary = vocabularies.load()
    return vocabulary, Tokeniser(vocabulary), Tables.of(vocabulary)


def _parts(settings: Settings, engine: Engine, store: Store, model: str) -> Parts:
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
        max_running=settings.max_running,
        sealer=_sealer(settings),
        mint=mint,
        today=lambda: settings.date or datetime.now(UTC).strftime("%Y-%m-%d"),
        clock_s=time.time,
        clock_ns=time.monotonic_ns,
        listener=RunLog(),
        bounds=RequestBounds(settings.max_tools, settings.max_input, settings.max_metadata),
        note_media=settings.note_images,
        max_calls=settings.max_calls,
    )


def _sealer(settings: Settings) -> Sealer:
    """Its keys are shared ones, or one of this server's own, which is made when it is needed."""
    path = settings.data_dir / "seal.key"
    if settings.seal_keys:
        shared = shared_keys(settings.seal_keys)
        return Sealer(lambda: shared)
    if path.exists():
        key_of(path)  # one that cannot be used stops the start
    return Sealer(lambda: [key_of(path)])


def _lifespan(  # type: ignore[no-untyped-def]
    settings: Settings,
    engine: Engine,
    store: Store,
    runs: Runs,
    background: Background,
    keep_alive: KeepAlive,
):
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        try:
            await store.start()
            await engine.start()
        except StartupError as error:
            app.state.startup_error = error
            await store.stop()
            raise
        # What is loaded by now lives as long as the process: a full collection need not walk it.
        gc.collect()
        gc.freeze()
        try:
            async with keep_alive.life(), background.life(settings.drain_s):
                yield
        finally:
            runs.fail_all(ApiError("The server was stopped."))
            await engine.stop(settings.drain_s)
            await store.stop()
            gc.unfreeze()  # a process may live on, and make another app

    return life


def _routes(
    settings: Settings,
    engine: Engine,
    runs: Runs,
    background: Background,
    stored: Stored,
    terms: Terms,
    model: str,
) -> list[Route]:
    headers = Headers(time.monotonic_ns)
    guard = Guard(
        hosts=settings.hosts(), origins=settings.allowed_origins, owners=settings.owners()
    )
    anybody = Guard(hosts=("*",), origins=("*",), owners={})
    responses = Responses(
        runs,
        background,
        Repeats(
            max_keys=settings.idempotency_keys,
            ttl_s=settings.idempotency_ttl_s,
            clock_s=time.monotonic,
        ),
        model=model,
        headers=headers,
        terms=terms,
        size=BodySize(settings.max_body_bytes, settings.max_body_values),
        dialect=DIALECTS[settings.dialect],
    )
    models = Models(model, int(time.time()), headers)
    health = HealthChecks(engine, runs, headers)
    docs = Docs(headers, model)
    fields = Fields(headers)

    def route(method: str, path: str, answer: Answer, who: Guard = guard) -> Route:
        endpoint = Endpoint(answer, guard=who, headers=headers)
        return Route(path, endpoint, methods=[method])

    return [
        route("POST", "/v1/responses", responses.create),
        route("POST", "/v1/responses/input_tokens", responses.count),
        route("GET", "/v1/responses/{response_id}", stored.retrieve),
        route("DELETE", "/v1/responses/{response_id}", stored.delete),
        route("POST", "/v1/responses/{response_id}/cancel", stored.cancel),
        route("GET", "/v1/responses/{response_id}/input_items", stored.input_items),
        route("GET", "/v1/fields", fields.list),
        route("GET", "/v1/models", models.list),
        route("GET", "/v1/models/{model:path}", models.retrieve),
        route("GET", "/health/live", health.live, anybody),
        route("GET", "/health/ready", health.ready, anybody),
        route("GET", "/openapi.json", docs.schema, anybody),
        route("GET", "/docs", docs.page, anybody),
    ]

"""Builds the parts and joins them; the only file that knows every other."""

from __future__ import annotations

import gc
import logging
import secrets
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import Route

from trt_responses import __version__
from trt_responses.engine.llamacpp import LlamaCppEngine
from trt_responses.errors import ApiError, StartupError
from trt_responses.harmony import vocabulary as vocabularies
from trt_responses.harmony.read import Reader, Tables
from trt_responses.harmony.render import Renderer
from trt_responses.harmony.tokenise import Tokeniser
from trt_responses.prepare import shelf
from trt_responses.prepare.build import MODEL
from trt_responses.prepare.card import this_machine
from trt_responses.response.runs import Parts, Runs
from trt_responses.settings import Settings
from trt_responses.store.memory import MemoryStore
from trt_responses.telemetry import RunLog
from trt_responses.web.docs import Docs, openapi
from trt_responses.web.endpoint import Endpoint, Headers, fault
from trt_responses.web.guard import Guard
from trt_responses.web.health import HealthChecks
from trt_responses.web.middleware import Arrival
from trt_responses.web.models import Models
from trt_responses.web.responses import Responses

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from trt_responses.engine.base import Engine
    from trt_responses.store.base import Store
    from trt_responses.web.endpoint import Answer

logger = logging.getLogger(__name__)


def create_app(
    settings: Settings | None = None, *, engine: Engine | None = None, store: Store | None = None
) -> FastAPI:
    """The server as an ASGI app. An engine or a store that is passed in is started and stopped
    with it, as the ones named in the settings are."""
    settings = settings or Settings.from_environment()
    model = settings.model or settings.engine or "demo"
    if engine is None:
        selection = chosen_engine(settings)
        logger.info("%s", selection.reason)
        model = settings.model or selection.card.name
        engine = engine_over(selection.directory / MODEL, settings)
    store = store or MemoryStore(max_bytes=settings.store_bytes, max_records=settings.store_records)
    runs = Runs(_parts(settings, engine, store, model))
    app = FastAPI(
        title="trt_responses",
        version=__version__,
        lifespan=_lifespan(settings, engine, store, runs),
    )
    app.state.runs, app.state.model, app.state.startup_error = runs, model, None
    app.router.routes[:] = _routes(settings, engine, store, runs, model)
    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to replace it
    app.add_middleware(Arrival, clock_ns=time.monotonic_ns, mint=mint)
    _answer_in_our_shape(app)
    return app


def chosen_engine(settings: Settings) -> shelf.Selection:
    """The prepared engine that the settings ask for, once its card agrees with this machine."""
    selection = shelf.select(settings.engines_dir, settings.engine)
    return shelf.serve_ready(selection, this_machine())


def engine_over(model_path: Path, settings: Settings) -> Engine:
    """The engine that serves a prepared model file."""
    return LlamaCppEngine(
        model_path,
        context_tokens=settings.context_tokens,
        slots=settings.slots,
        threads=settings.threads,
    )


def mint(prefix: str) -> str:
    """A fresh id in the API's form."""
    return f"{prefix}_{secrets.token_hex(24)}"


def _parts(settings: Settings, engine: Engine, store: Store, model: str) -> Parts:
    vocabulary = vocabularies.load()
    tables = Tables.of(vocabulary)
    return Parts(
        engine=engine,
        store=store,
        renderer=Renderer(vocabulary, Tokeniser(vocabulary)),
        new_reader=lambda: Reader(tables),
        model=model,
        identity=settings.identity,
        knowledge_cutoff=settings.knowledge_cutoff,
        max_running=settings.max_running,
        mint=mint,
        today=lambda: settings.date or datetime.now(UTC).strftime("%Y-%m-%d"),
        clock_s=time.time,
        clock_ns=time.monotonic_ns,
        listener=RunLog(),
    )


def _lifespan(settings: Settings, engine: Engine, store: Store, runs: Runs):  # type: ignore[no-untyped-def]
    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        try:
            await store.start()
            await engine.start()
        except StartupError as error:
            app.state.startup_error = error
            raise
        # What is loaded by now lives as long as the process: a full collection need not walk it.
        gc.collect()
        gc.freeze()
        try:
            yield
        finally:
            runs.fail_all(ApiError("The server was stopped."))
            await engine.stop(settings.drain_s)
            await store.stop()

    return life


def _routes(
    settings: Settings, engine: Engine, store: Store, runs: Runs, model: str
) -> list[Route]:
    headers = Headers(time.monotonic_ns)
    guard = Guard(
        hosts=settings.hosts(), origins=settings.allowed_origins, owners=settings.owners()
    )
    anybody = Guard(hosts=("*",), origins=("*",), owners={})
    responses = Responses(
        runs, store, model=model, headers=headers, max_body_bytes=settings.max_body_bytes
    )
    models = Models(model, int(time.time()), headers)
    health = HealthChecks(engine, runs, headers)
    docs = Docs()

    def route(method: str, path: str, answer: Answer, who: Guard = guard) -> Route:
        endpoint = Endpoint(answer, guard=who, headers=headers)
        return Route(path, endpoint, methods=[method])

    return [
        route("POST", "/v1/responses", responses.create),
        route("GET", "/v1/responses/{response_id}", responses.retrieve),
        route("DELETE", "/v1/responses/{response_id}", responses.delete),
        route("GET", "/v1/models", models.list),
        route("GET", "/v1/models/{model:path}", models.retrieve),
        route("GET", "/health/live", health.live, anybody),
        route("GET", "/health/ready", health.ready, anybody),
        route("GET", "/openapi.json", docs.schema, anybody),
        route("GET", "/docs", docs.page, anybody),
    ]


def _answer_in_our_shape(app: FastAPI) -> None:
    """Unknown paths, wrong methods and our own bugs answer in the API's shape too."""
    headers = Headers(time.monotonic_ns)

    async def unknown(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        told = ApiError(
            f"{request.method} {request.url.path}: {error.detail}.",
            status=error.status_code,
            type="invalid_request_error",
            code="unknown_url" if error.status_code == 404 else None,
        )
        return fault(told, headers(request))

    async def ours(request: Request, error: Exception) -> Response:
        told = ApiError(f"The server failed ({type(error).__name__}); the log has the details.")
        return fault(told, headers(request))

    app.add_exception_handler(HTTPException, unknown)
    app.add_exception_handler(Exception, ours)

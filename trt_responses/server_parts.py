"""The parts of one server, made from its settings. Knows every room but the routes."""

from __future__ import annotations

import logging
import secrets
import sys
import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses import __version__, backends
from trt_responses.access.admission import Admission, Bounds
from trt_responses.access.audit import Audit
from trt_responses.access.counts import LocalCounts
from trt_responses.access.key_file import WatchedKeys
from trt_responses.access.keys import KeyFault, KeyRing, OwnerLimits
from trt_responses.builds import builds_of, gate_prompts, loaded
from trt_responses.errors import StartupError
from trt_responses.frozen import dataclass
from trt_responses.response.background.background import Background
from trt_responses.response.health import Health
from trt_responses.response.included import Inclusion
from trt_responses.response.lifecycle import Lifecycle
from trt_responses.response.parts import Parts
from trt_responses.response.run.recovery import Recovery
from trt_responses.response.run.runs import Runs
from trt_responses.response.seal.sealer import Sealer, key_of, shared_keys
from trt_responses.response.stall import StallWatch
from trt_responses.response.steering.steering import Steering
from trt_responses.response.versions.exchange import Exchange
from trt_responses.response.versions.gate import Gate
from trt_responses.response.versions.versions import Loaded, Version, Versions
from trt_responses.telemetry.explanations import Explanations
from trt_responses.telemetry.log import RequestLog
from trt_responses.telemetry.metrics import Metrics
from trt_responses.telemetry.statistics import Statistics
from trt_responses.telemetry.token_gaps import TokenGaps
from trt_responses.telemetry.traces import Traces, traces_to
from trt_responses.web.idempotency import Repeats
from trt_responses.web.models import ModelNames
from trt_responses.web.stream.keepalive import KeepAlive

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from trt_responses.access.counts import Counts
    from trt_responses.engine.base import Engine
    from trt_responses.language.base import Dialect
    from trt_responses.prepare.shelf import Selection
    from trt_responses.response.run.run import Listener
    from trt_responses.response.versions.exchange import Builds
    from trt_responses.settings import Settings
    from trt_responses.store.base import Store
    from trt_responses.tools.base import Tool


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The parts that the endpoints and the app's life share."""

    settings: Settings
    engine: Engine
    model: str
    names: ModelNames
    versions: Versions
    """Those of the engine that are loaded."""
    exchange: Exchange
    about: Callable[[], Mapping[str, Any]]
    """What is served, as the health route tells it."""
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


class _Served(NamedTuple):
    """The engine, and what can be loaded in its place, or why nothing can."""

    loaded: Loaded
    model: str
    builds: Builds | str
    dialect: Dialect


class Given(NamedTuple):
    """What a program hands in that makes an app of its own engine."""

    engine: Engine | Loaded | None = None
    builds: Builds | None = None
    speaks: Dialect | None = None

    @property
    def dialect(self) -> Dialect:
        return self.speaks or backends.dialect_of()


def _served(
    settings: Settings, given: Given, engine_of: Callable[[Selection, Settings], Engine]
) -> _Served:
    """The engine that was given, that of a Triton, or the one that the settings choose."""
    engine = given.engine
    if isinstance(engine, Loaded):
        none = "The program that runs this server has given it no other versions."
        return _Served(engine, engine.version.name, given.builds or none, given.dialect)
    if engine is not None:  # by the program that embeds this one
        model = settings.model or settings.engine or "demo"
        loaded_one = Loaded(Version(model, "given"), engine)
        why = "The engine was given by the program that runs this server, which exchanges it."
        return _Served(loaded_one, model, why, given.dialect)
    if settings.triton is not None:
        model = settings.model or settings.triton.partition("/")[2]
        card = {"kind": "triton", "name": settings.triton}
        engine = backends.triton_at(settings.triton)
        far = Loaded(Version(model, "triton"), engine, card=card)
        why = "The engine is a Triton's: load and unload its versions there."
        return _Served(far, model, why, backends.dialect_of())
    selection = backends.chosen_engine(settings)
    logger.info("%s", selection.reason)
    found = loaded(selection, settings, engine_of)
    others = builds_of(settings, selection.card, engine_of)
    dialect = backends.dialect_of(selection.directory, selection.card)
    return _Served(found, found.version.name, others, dialect)


def server_parts(
    settings: Settings,
    given: Given,
    store: Store | None,
    tools: Sequence[Tool] | None,
    engine_of: Callable[[Selection, Settings], Engine],
    counts: Counts | None,
    sleep: Callable[[float], Awaitable[None]],
) -> ServerParts:
    served = _served(settings, given, engine_of)
    model, versions, dialect = served.model, Versions(served.loaded), served.dialect
    if tools is None:
        tools = backends.tools_of(settings)
    if store is None:
        store = backends.store_of(settings, backends.spelled())
    keys = _keys(settings)
    watched = _watched(settings, keys, sleep)
    metrics = Metrics(
        model=model,
        engine=served.loaded.version.kind,
        versions=versions.live,
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
    counts = counts or LocalCounts()
    admission = _admission(settings, versions, keys, counts)
    recovery = Recovery(
        versions, wait_s=settings.engine_pause_s, clock_s=time.monotonic, sleep=sleep
    )
    stall_watch = StallWatch(
        versions,
        admission,
        lifecycle,
        fail_begun=lambda error: runs.fail_begun(error),
        stall_s=settings.stall_s,
        clock_ns=time.monotonic_ns,
        sleep=sleep,
        paused=lambda: recovery.paused,
    )
    listeners.append(stall_watch)
    parts = _parts(settings, versions, dialect, store, tools, model, admission, recovery, listeners)
    runs = Runs(parts, lifecycle)
    prompts = gate_prompts(settings.gate_prompts)
    exchange = Exchange(versions, served.builds, partial(Gate, parts, prompts), lifecycle)
    health = Health(lifecycle, versions, admission, stall_watch, clock_ns=time.monotonic_ns)
    _read_state(metrics, health, watched, recovery, versions)
    _read_store(metrics, store)
    metrics.show_as(settings.metrics_names)
    return ServerParts(
        settings=settings,
        engine=versions,
        model=model,
        names=ModelNames(model, settings.model_aliases, settings.any_model, versions.live),
        versions=versions,
        exchange=exchange,
        about=partial(_about, model, versions),
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
        background=Background(
            runs,
            store,
            count=admission.count_background,
            max_per_owner=settings.max_background,
            model=f"{model} {dialect.vocabulary}".rstrip(),  # whose ids a job's are
            sleep=sleep,
        ),
        keep_alive=KeepAlive(settings.keep_alive_s, settings.keep_alive_event_s, sleep),
        repeats=Repeats(
            max_keys=settings.idempotency_keys,
            ttl_s=settings.idempotency_ttl_s,
            clock_s=time.monotonic,
        ),
        sleep=sleep,
    )


def _about(model: str, versions: Versions) -> dict[str, Any]:
    version = versions.promoted.version
    engine: dict[str, Any] = {"kind": version.kind, "version": version.digest}
    if version.number is not None:
        engine["number"] = version.number
    return {"model": model, "version": __version__, "engine": engine}


def mint(prefix: str) -> str:
    """A fresh id in the API's form."""
    return f"{prefix}_{secrets.token_hex(24)}"


def _read_state(
    metrics: Metrics,
    health: Health,
    watched: WatchedKeys | None,
    recovery: Recovery,
    versions: Versions,
) -> None:
    """What is not counted but asked for, when the metrics are read."""
    metrics.reading(
        "engine_version_gone",
        "Responses that continue one of a version that is not loaded any more.",
        lambda: versions.gone,
        kind="counter",
    )
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
        (
            "responses_paused",
            "Responses running that wait until the engine is back.",
            lambda: recovery.paused,
        ),
        (
            "kv_cache_use_ratio",
            "The share of the engine's KV cache that running responses hold.",
            lambda: versions.health().cache_use,
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


def _read_store(metrics: Metrics, store: Store) -> None:
    """What the history has found, dropped and holds."""
    metrics.reading_by(
        *("store_reads", "Responses that were looked up in the history.", "outcome"),
        lambda: store.usage.reads,
    )
    metrics.reading_by(
        *("store_blocks_read", "Messages of histories, by where they were read from.", "source"),
        lambda: store.usage.blocks,
    )
    metrics.reading_by(
        *("store_evictions", "Records that left the history of their own.", "reason"),
        lambda: store.usage.dropped,
        shared=store.usage.shared,
    )
    metrics.reading(
        "store_bytes", "What the history holds at rest.", lambda: store.usage.size_bytes
    )
    metrics.reading("store_records", "Records in the history.", lambda: store.usage.records)


def _parts(
    settings: Settings,
    versions: Versions,
    dialect: Dialect,
    store: Store,
    tools: Sequence[Tool],
    model: str,
    admission: Admission,
    recovery: Recovery,
    listeners: Sequence[Listener],
) -> Parts:
    return Parts(
        engine=versions,
        versions=versions,
        store=store,
        dialect=dialect,
        steering=Steering(dialect, schema_s=settings.schema_s),
        model=model,
        identity=settings.identity,
        knowledge_cutoff=settings.knowledge_cutoff,
        admission=admission,
        sealer=_sealer(settings),
        inclusion=Inclusion(dialect, tells_messages=settings.explain == "full"),
        mint=mint,
        today=lambda: settings.date or datetime.now(UTC).strftime("%Y-%m-%d"),
        clock_s=time.time,
        clock_ns=time.monotonic_ns,
        listeners=listeners,
        recovery=recovery if settings.engine_pause_s else None,
        note_media=settings.note_images,
        max_calls=settings.max_calls,
        tools={tool.kind: tool for tool in tools},
        max_tool_calls=settings.max_tool_calls,
        thought_summaries=settings.thought_summaries,
    )


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
    counts: Counts,
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
        counts=counts,
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

"""The parts of one server, made from its settings. Knows every room but those of the routes."""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from trt_responses.accept.model_names import ModelNames
from trt_responses.backends.dialects import spelled
from trt_responses.backends.stores import store_of
from trt_responses.backends.tools import tools_of
from trt_responses.errors import StartupError
from trt_responses.features.background.background import Background
from trt_responses.features.compaction.feature import Compactions
from trt_responses.features.conversations.feature import InConversations
from trt_responses.features.conversations.locks import Locks
from trt_responses.features.hosted_tools.approvals import Ledger
from trt_responses.features.hosted_tools.feature import HostedTools
from trt_responses.features.include.include import Inclusion
from trt_responses.features.limits.admission import Admission, Bounds
from trt_responses.features.limits.audit import Audit
from trt_responses.features.limits.counts import LocalCounts
from trt_responses.features.limits.key_file import WatchedKeys
from trt_responses.features.limits.keys import KeyFault, KeyRing, OwnerLimits
from trt_responses.features.logprobs.feature import Logprobs
from trt_responses.features.prefill.feature import Prefills
from trt_responses.features.rollout.exchange import Exchange
from trt_responses.features.rollout.gate import Gate
from trt_responses.features.rollout.leases import VersionLeases, made_by, pause
from trt_responses.features.rollout.shelf_builds import gate_prompts
from trt_responses.features.rollout.versions import Versions
from trt_responses.features.seal.feature import Seals
from trt_responses.features.seal.sealer import Sealer, key_of, shared_keys
from trt_responses.features.stop.feature import Stop
from trt_responses.frozen import dataclass
from trt_responses.run.health import Health
from trt_responses.run.lifecycle import Lifecycle
from trt_responses.run.parts import Parts
from trt_responses.run.recovery import Recovery
from trt_responses.run.runs import Runs
from trt_responses.run.stall import StallWatch
from trt_responses.setup.engine import Given, about, served_engine
from trt_responses.setup.telemetry import (
    Telemetry,
    read_state,
    read_store,
    read_tools,
    telemetry_of,
)
from trt_responses.steering.steering import Steering
from trt_responses.web.idempotency import Repeats
from trt_responses.web.stream.keepalive import KeepAlive

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from trt_responses.dialect import Dialect
    from trt_responses.engine import Engine
    from trt_responses.feature import Feature
    from trt_responses.features.limits.counts import Counts
    from trt_responses.features.rollout.builds import Builds
    from trt_responses.prepare.shelf.shelf import Selection
    from trt_responses.run.facts import Listener
    from trt_responses.settings import Settings
    from trt_responses.store import Store
    from trt_responses.tool import Tool


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The parts that the endpoints and the app's life share."""

    settings: Settings
    engine: Engine
    model: str
    names: ModelNames
    versions: Versions
    """The loaded versions of the engine."""
    exchange: Exchange
    about: Callable[[], Mapping[str, Any]]
    """Gives what is served, for the health route."""
    store: Store
    tools: Sequence[Tool]
    keys: KeyRing
    watched: WatchedKeys | None
    telemetry: Telemetry
    lifecycle: Lifecycle
    parts: Parts
    runs: Runs
    stall_watch: StallWatch
    health: Health
    background: Background
    locks: Locks
    keep_alive: KeepAlive
    repeats: Repeats
    sleep: Callable[[float], Awaitable[None]]


def server_parts(
    settings: Settings,
    given: Given,
    store: Store | None,
    tools: Sequence[Tool] | None,
    engine_of: Callable[[Selection, Settings], Engine],
    counts: Counts | None,
    sleep: Callable[[float], Awaitable[None]],
) -> ServerParts:
    """All parts of one server. A store, tools and counts that are not given are made."""
    served = served_engine(settings, given, engine_of)
    model, versions, dialect = served.model, Versions(served.loaded), served.dialect
    tools = tools_of(settings) if tools is None else tools
    store = store_of(settings, spelled()) if store is None else store
    keys = _keys(settings)
    watched = _watched(settings, keys, sleep)
    telemetry = telemetry_of(settings, served, versions, lambda: runs.progress())
    lifecycle = Lifecycle(time.monotonic)
    admission = _admission(settings, versions, keys, counts or LocalCounts())
    recovery = Recovery(
        versions, wait_s=settings.engine_pause_s, clock_s=time.monotonic, sleep=sleep
    )
    stall_watch = StallWatch(
        versions,
        admission,
        lifecycle,
        fail_begun=lambda error: runs.fail_begun(error),
        stall_s=settings.stall_s,
        pause_s=settings.engine_pause_s,
        clock_ns=time.monotonic_ns,
        sleep=sleep,
        paused=lambda: recovery.paused,
    )
    listeners = [*telemetry.listeners(settings), stall_watch]
    names = ModelNames(model, settings.model_aliases, settings.any_model, lambda: tuple(versions))
    locks, sealer = Locks(store, sleep), _sealer(settings)
    parts = _parts(settings, versions, dialect, store, tools, names, admission, recovery, listeners)
    parts = replace(
        parts, carried=sealer, features=_features(settings, parts, sealer, locks, dialect)
    )
    runs = Runs(parts, lifecycle)
    health = Health(lifecycle, versions, admission, stall_watch, clock_ns=time.monotonic_ns)
    read_state(telemetry.metrics, health, watched, recovery, versions)
    read_store(telemetry.metrics, store)
    read_tools(telemetry.metrics, tools)
    telemetry.metrics.show_as(settings.metrics_names)
    return ServerParts(
        settings=settings,
        engine=versions,
        model=model,
        names=names,
        versions=versions,
        exchange=_exchange(settings, parts, versions, served.builds, lifecycle, runs, sleep),
        about=partial(about, model, versions),
        store=store,
        tools=tools,
        keys=keys,
        watched=watched,
        telemetry=telemetry,
        lifecycle=lifecycle,
        parts=parts,
        runs=runs,
        stall_watch=stall_watch,
        health=health,
        background=_background(settings, runs, parts, admission, lifecycle, sleep),
        locks=locks,
        keep_alive=KeepAlive(settings.keep_alive_s, settings.keep_alive_event_s, sleep),
        repeats=Repeats(
            max_keys=settings.idempotency_keys,
            ttl_s=settings.idempotency_ttl_s,
            clock_s=time.monotonic,
        ),
        sleep=sleep,
    )


def _exchange(
    settings: Settings,
    parts: Parts,
    versions: Versions,
    builds: Builds | str,
    lifecycle: Lifecycle,
    runs: Runs,
    sleep: Callable[[float], Awaitable[None]],
) -> Exchange:
    """The part that loads other versions, each of which is compared by the gate's prompts first."""
    prompts = gate_prompts(settings.gate_prompts)
    new_gate = partial(Gate, parts, prompts, partial(made_by, runs), sleep)
    may_pause = partial(pause, runs) if parts.recovery is not None else None
    return Exchange(versions, builds, new_gate, lifecycle, may_pause)


def _features(
    settings: Settings, parts: Parts, sealer: Sealer, locks: Locks, dialect: Dialect
) -> Sequence[Feature]:
    """What requests may bring beyond the core."""
    return (
        InConversations(locks),
        Compactions(sealer),
        HostedTools(parts.tools, Ledger(parts.store), sealer),
        Stop(),
        Logprobs(),
        Prefills(),
        Seals(sealer),
        Inclusion(dialect, tells_messages=settings.explain == "full"),
    )


def _background(
    settings: Settings,
    runs: Runs,
    parts: Parts,
    admission: Admission,
    lifecycle: Lifecycle,
    sleep: Callable[[float], Awaitable[None]],
) -> Background:
    return Background(
        runs,
        parts.store,
        count=admission.count_background,
        max_per_owner=settings.max_background,
        model=f"{parts.model} {parts.dialect.vocabulary}".rstrip(),  # whose ids a job's are
        check_streams=lifecycle.check_streams,
        sleep=sleep,
    )


def mint(prefix: str) -> str:
    """A fresh id in the API's form."""
    return f"{prefix}_{os.urandom(24).hex()}"


def _parts(
    settings: Settings,
    versions: Versions,
    dialect: Dialect,
    store: Store,
    tools: Sequence[Tool],
    names: ModelNames,
    admission: Admission,
    recovery: Recovery,
    listeners: Sequence[Listener],
) -> Parts:
    return Parts(
        engine=versions,
        leases=VersionLeases(versions),
        store=store,
        dialect=dialect,
        steering=Steering(dialect, schema_s=settings.schema_s),
        model=names.served,
        names=names,
        identity=settings.identity,
        knowledge_cutoff=settings.knowledge_cutoff,
        admission=admission,
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
        """The engine's places, now; none while it mends itself."""
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
    """The file of keys, loaded. Raises a `StartupError` for one that cannot be used."""
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

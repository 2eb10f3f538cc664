"""Metrics, the log of requests, and statistics."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from starlette.types import Scope

from trt_responses import __version__
from trt_responses.features.health.health import Health
from trt_responses.features.metrics.endpoint import MetricsPage
from trt_responses.features.metrics.log import RequestLog
from trt_responses.features.metrics.metrics import Metrics
from trt_responses.features.metrics.requests import facts_of
from trt_responses.features.metrics.statistics import Statistics
from trt_responses.features.metrics.token_gaps import TokenGaps
from trt_responses.setup.server import Server
from trt_responses.stores.whole import WholeStore
from trt_responses.tool import Tool


@runtime_checkable
class RunsProcesses(Protocol):
    """A tool whose calls run in processes of their own."""

    @property
    def name(self) -> str: ...

    @property
    def processes(self) -> int:
        """The number that runs now."""
        ...


def install(server: Server) -> None:
    metrics = Metrics(
        model=server.served.model,
        engine=server.served.kind,
        versions=lambda: tuple(each.version for each in server.loaded()),
        version=__version__,
        live_tokens=lambda: sum(run.tokens for run in server.runs.progress()),
    )
    log, statistics = RequestLog(), Statistics()

    def request_ended(scope: Scope, unrouted: int | None) -> None:
        facts = facts_of(scope, unrouted)
        metrics.request_ended(facts)
        log.request_ended(facts)

    gaps = TokenGaps(metrics.gap_s, lambda: server.runs.progress(), time.monotonic_ns)
    server.listeners += (log, metrics, gaps, statistics)
    server.request_ended.append(request_ended)
    server.lives.append(gaps.life)
    server.provide(metrics, statistics)
    server.add_routes(70, lambda shared: [MetricsPage(shared)])
    server.when_built(partial(_read, server, metrics))


def _read(server: Server, metrics: Metrics) -> None:
    """Have the metrics ask the server's parts at each scrape."""
    read_state(metrics, server.of(Health), lambda: server.paused)
    for reading in server.readings:
        metrics.reading(reading.name, reading.help_text, reading.read, kind=reading.kind)
    for each in server.labelled_readings:
        metrics.reading_by(each.name, each.help_text, each.label, each.read, kind=each.kind)
    read_store(metrics, server.store)
    read_tools(metrics, server.tools)
    metrics.show_aliases()


def read_state(metrics: Metrics, health: Health, paused: Callable[[], int]) -> None:
    """Have the metrics ask the server's parts for their state at each scrape."""
    metrics.readings(
        health,
        (
            (
                "responses_running",
                "Responses being made, as many as the engine has places for.",
                lambda report: report.running,
            ),
            (
                "responses_waiting",
                "Responses accepted beyond the engine's places.",
                lambda report: report.waiting,
            ),
            (
                "responses_paused",
                "Responses running that wait until the engine is back.",
                lambda _: paused(),
            ),
            (
                "kv_cache_use_ratio",
                "The share of the engine's KV cache that running responses hold.",
                lambda report: report.cache_use,
            ),
            (
                "engine_queue_requests",
                "Requests that wait in the engine's own queue.",
                lambda report: report.engine_queued,
            ),
            ("engine_alive", "Whether it is, or can recover.", lambda r: r.engine_alive),
            ("engine_ready", "Whether it takes work now.", lambda r: r.engine_ready),
            ("ready", "Whether the server should be sent work.", lambda r: r.ready),
            ("draining", "Whether the server is being stopped.", lambda r: r.state == "draining"),
        ),
    )


def read_tools(metrics: Metrics, tools: Sequence[Tool]) -> None:
    """Have the metrics ask the tools, at each scrape, for their processes."""
    counting = [tool for tool in tools if isinstance(tool, RunsProcesses)]
    metrics.reading_by(
        *("tool_processes", "Processes that run for a tool now.", "tool"),
        lambda: {tool.name: tool.processes for tool in counting},
        kind="gauge",
    )


def read_store(metrics: Metrics, store: WholeStore) -> None:
    """Have the metrics ask the store, at each scrape, what it has found, dropped and holds."""
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

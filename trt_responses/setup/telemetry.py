"""The listeners of a server's runs and requests, and what its metrics ask at a scrape."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from trt_responses import __version__
from trt_responses.features.explain.explanations import Explanations
from trt_responses.features.metrics.log import RequestLog
from trt_responses.features.metrics.metrics import Metrics
from trt_responses.features.metrics.statistics import Statistics
from trt_responses.features.metrics.token_gaps import TokenGaps
from trt_responses.features.traces.traces import Traces, traces_to
from trt_responses.tool import RunsProcesses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trt_responses.features.limits.key_file import WatchedKeys
    from trt_responses.features.rollout.versions import Versions
    from trt_responses.run.facts import Listener, Progress
    from trt_responses.run.health import Health
    from trt_responses.run.recovery import Recovery
    from trt_responses.settings import Settings
    from trt_responses.setup.engine import ServedEngine
    from trt_responses.store import Store
    from trt_responses.tool import Tool


class Telemetry(NamedTuple):
    """Those who hear of each run at its end."""

    metrics: Metrics
    request_log: RequestLog
    traces: Traces | None
    statistics: Statistics
    token_gaps: TokenGaps
    explanations: Explanations

    def listeners(self, settings: Settings) -> list[Listener]:
        """All that the settings switch on, in the order in which they hear."""
        found: list[Listener] = [self.traces] if self.traces is not None else []
        found += [self.request_log, self.metrics, self.token_gaps, self.statistics]
        if settings.explain != "off" and settings.explain_bytes:
            found.append(self.explanations)
        return found


def telemetry_of(
    settings: Settings,
    served: ServedEngine,
    versions: Versions,
    progress: Callable[[], Iterable[Progress]],
) -> Telemetry:
    """The listeners of a server. `progress` gives the runs that are being made."""
    metrics = Metrics(
        model=served.model,
        engine=served.loaded.version.kind,
        versions=versions.live,
        version=__version__,
        live_tokens=lambda: sum(run.tokens for run in progress()),
    )
    endpoint = settings.otlp_endpoint
    return Telemetry(
        metrics,
        RequestLog(),
        traces_to(endpoint, __version__, settings.otlp_names) if endpoint else None,
        Statistics(),
        TokenGaps(metrics.gap_s, progress, time.monotonic_ns),
        Explanations(settings.explain_bytes),
    )


def read_state(
    metrics: Metrics,
    health: Health,
    watched: WatchedKeys | None,
    recovery: Recovery,
    versions: Versions,
) -> None:
    """Have the metrics ask the server's parts for their state at each scrape."""
    metrics.reading(
        "engine_version_gone",
        "Responses that continue one of a version that is not loaded any more.",
        lambda: versions.gone,
        kind="counter",
    )
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
                lambda _: recovery.paused,
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
    if watched is not None:
        metrics.reading("keys", "Keys of the file that are known.", lambda: len(watched))
        metrics.reading(
            "keys_file_fault",
            "Whether the file as it is cannot be used, and older keys are.",
            lambda: watched.fault is not None,
        )


def read_tools(metrics: Metrics, tools: Sequence[Tool]) -> None:
    """Have the metrics ask the tools, at each scrape, for their processes."""
    counting = [tool for tool in tools if isinstance(tool, RunsProcesses)]
    metrics.reading_by(
        *("tool_processes", "Processes that run for a tool now.", "tool"),
        lambda: {tool.name: tool.processes for tool in counting},
        kind="gauge",
    )


def read_store(metrics: Metrics, store: Store) -> None:
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

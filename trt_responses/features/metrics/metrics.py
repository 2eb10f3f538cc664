"""The server's metrics: what is counted, under which names, and how a scrape of it reads.

No label's value comes from the free text of a request. Knows finished runs and numbers that it is
given to ask for; knows no HTTP, no engine and no store.
"""

from __future__ import annotations

import os
import time
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from trt_responses.features.metrics.aliases import aliases
from trt_responses.features.metrics.families import (
    Counter,
    Histogram,
    Reading,
    Shown,
    open_metrics,
    summed,
    text,
)

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from trt_responses.features.metrics.families import Family, Kind, Labels, More
    from trt_responses.features.metrics.requests import RequestFacts
    from trt_responses.features.rollout.loaded import Version
    from trt_responses.run.facts import RunFacts

PREFIX = "trt_responses_"

# The bounds that vLLM and TensorRT-LLM share, so that dashboards for them read the same here.
FIRST_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
WHOLE_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
ADDED_KINDS: frozenset[Kind] = frozenset({"counter", "histogram", "gauge"})
ADDED_GAUGES = frozenset(
    {"responses_running", "responses_waiting", "resident_bytes", "tool_processes"}
)
"""The gauges that are added up over several front ends; the others are the same for all, or of one
process."""
Samples = dict[str, list[Any]]
"""Samples by a family's name: the labels of each, and its number or numbers."""
PROMPT, CACHED, GENERATED = ("prompt",), ("cached",), ("generated",)

T = TypeVar("T")


class Metrics:
    """All that is counted. A listener of runs and of requests."""

    def __init__(
        self,
        *,
        model: str,
        engine: str,
        versions: Callable[[], Sequence[Version]],
        version: str,
        live_tokens: Callable[[], int] = lambda: 0,
    ) -> None:
        """`versions` are those of the engine that are loaded, the promoted one first;
        `live_tokens` are those that running responses have generated so far."""
        self._live_tokens = live_tokens
        self.others: Callable[[], Awaitable[Sequence[Samples]]] = no_siblings
        """The numbers of processes that serve together with this one."""
        self._tokens: dict[Labels, int] = dict.fromkeys((PROMPT, CACHED, GENERATED), 0)
        self._requests = Counter("method", "endpoint", "status", "end")
        self._responses = Counter("end")
        for end in ("completed", "incomplete", "failed", "cancelled"):
            self._responses.add(end, by=0)
        self._repairs = Counter("kind")
        self._pauses = Counter("engine")
        self._calls = Counter("kind")
        self._tool_runs = Counter("tool", "outcome")
        self._tool_bytes = Counter("tool")
        self._tool_s = Histogram(WHOLE_S)
        tokens = Reading("counter", ("kind",), self._tokens_so_far)
        self._queue_s, self._prefill_s, self._decode_s = (Histogram(WHOLE_S) for _ in range(3))
        self._whole_s = Histogram(WHOLE_S)
        self._first_token_s = Histogram(FIRST_S)
        self.gap_s, self._mean_gap_s = Histogram(TOKEN_S), Histogram(TOKEN_S)
        self._engine_s = Histogram(WHOLE_S)
        self._families: dict[str, Family] = {}
        self._shown: list[Shown] = []
        self._asks: list[Callable[[], None]] = []
        """Done at the beginning of each scrape, for what several numbers are read from."""
        self._shared: set[str] = set()
        """Metrics that are equal in every process; not summed."""
        self._model, self._engine = model, engine
        build = Reading("info", ("version",), lambda: {(version,): 1})
        self._show("build", "The server.", build)
        self._show(
            "model",
            "What is served: each version of the engine that is loaded.",
            Reading(
                "info",
                ("model", "engine", "engine_version", "engine_number"),
                lambda: {(model, v.kind, v.digest, str(v.number or "")): 1 for v in versions()},
            ),
        )
        for name, family, help_text in (
            ("requests", self._requests, "HTTP requests, by what became of each."),
            ("responses", self._responses, "Responses made, by how they ended."),
            ("tokens", tokens, "Tokens; those from a cache are prompt tokens too."),
            ("tool_calls", self._calls, "Calls that models wrote, by the kind of item."),
            ("tool_runs", self._tool_runs, "Calls that the server ran, by tool and outcome."),
            ("tool_answer_bytes", self._tool_bytes, "Bytes that tools answered, by tool."),
            ("tool_seconds", self._tool_s, "How long a call ran that the server ran."),
            ("repairs", self._repairs, "Mended token sequences, by kind."),
            ("pauses", self._pauses, "Segments that an engine broke off: it died, or went."),
            ("queue_seconds", self._queue_s, "From arrival until the engine got the request."),
            ("prefill_seconds", self._prefill_s, "From asking the engine to its first token."),
            ("first_token_seconds", self._first_token_s, "From arrival to the first token."),
            ("inter_token_seconds", self.gap_s, "Between one token and the next."),
            ("mean_inter_token_seconds", self._mean_gap_s, "The same, a mean for each response."),
            ("engine_seconds", self._engine_s, "From asking the engine to its last token."),
            ("decode_seconds", self._decode_s, "From the first token to the last."),
            ("response_seconds", self._whole_s, "From arrival to the end, stored and sent."),
        ):
            self._show(name, help_text, family)
        started_s = time.time()
        self.reading(
            "cached_tokens_ratio",
            "Of all prompt tokens so far, the share that came from a cache.",
            lambda: self._tokens[CACHED] / (self._tokens[PROMPT] or 1),
        )
        self.reading("start_time_seconds", "When it started, as Unix time.", lambda: started_s)
        self.reading(
            "cpu_seconds",
            "CPU time of the process.",
            lambda: round(time.process_time(), 6),
            kind="counter",
        )
        self.reading("resident_bytes", "Memory of the process.", _resident_bytes)

    def reading(
        self, name: str, help_text: str, read: Callable[[], float | None], *, kind: Kind = "gauge"
    ) -> None:
        """Show a number that is read at each scrape: 1 or 0 for a truth, and no sample for None."""

        def samples() -> dict[Labels, float]:
            number = read()
            return {} if number is None else {(): +number}

        self._show(name, help_text, Reading(kind, (), samples))

    def readings(
        self, ask: Callable[[], T], rows: Iterable[tuple[str, str, Callable[[T], float | None]]]
    ) -> None:
        """Show numbers of one result, which is read once at each scrape."""
        latest: list[T] = []

        def ask_anew() -> None:
            latest[:] = [ask()]

        self._asks.append(ask_anew)
        for name, help_text, read in rows:
            self.reading(name, help_text, lambda read=read: read(latest[0]))  # type: ignore[misc]

    def reading_by(
        self,
        name: str,
        help_text: str,
        label: str,
        read: Callable[[], Mapping[str, float]],
        *,
        shared: bool = False,
        kind: Kind = "counter",
    ) -> None:
        """Show a number for each value of a label; a `shared` one is the same to all processes."""
        by_label = Reading(kind, (label,), lambda: {(k,): +n for k, n in read().items()})
        self._show(name, help_text, by_label)
        if shared:
            self._shared.add(name)

    def show_aliases(self) -> None:
        """Show the same numbers under the names that other servers' dashboards ask for, too."""
        self._shown += aliases(self._families, self._model, self._engine)

    def _show(self, name: str, help_text: str, family: Family) -> None:
        self._families[name] = family
        self._shown.append(Shown(PREFIX + name, help_text, family))

    # --- what is counted ----------------------------------------------------------------------

    def request_ended(self, facts: RequestFacts) -> None:
        self._requests.add(facts.method, facts.endpoint, str(facts.status), facts.end)

    def run_ended(self, facts: RunFacts) -> None:
        response, usage = facts.response, facts.response.usage
        self._responses.add(response.status)
        for run in facts.tool_runs:
            self._tool_runs.add(run.tool, "failed" if run.failed else "completed")
            self._tool_bytes.add(run.tool, by=run.answer_bytes)
            self._tool_s.observe(run.duration_ns / 1e9)
        for kind, count in facts.repairs.items():
            self._repairs.add(kind, by=count)
        for end in facts.ends:
            if end.lost is not None:
                self._pauses.add(end.lost)
        for item in response.output:
            if item.type.endswith("_call"):
                self._calls.add(item.type)
        if usage is not None:
            self._tokens[PROMPT] += usage.input_tokens
            self._tokens[CACHED] += usage.input_tokens_details.cached_tokens
            self._tokens[GENERATED] += usage.output_tokens
        self._times(facts, usage.output_tokens if usage is not None else 0)

    def _times(self, facts: RunFacts, tokens: int) -> None:
        arrival, requested, first = facts.arrival_ns, facts.requested_ns, facts.first_token_ns
        self._whole_s.observe((facts.end_ns - arrival) / 1e9)
        if requested is not None:
            self._queue_s.observe((requested - arrival) / 1e9)
        if requested is None or first is None:
            return
        self._prefill_s.observe((first - requested) / 1e9)
        self._first_token_s.observe((first - arrival) / 1e9)
        last = facts.last_token_ns or first
        self._engine_s.observe((last - requested) / 1e9)
        decode_s = (last - first) / 1e9
        self._decode_s.observe(decode_s)
        if tokens > 1:
            self._mean_gap_s.observe(decode_s / (tokens - 1))

    def _tokens_so_far(self) -> Mapping[Labels, int]:
        return self._tokens | {GENERATED: self._tokens[GENERATED] + self._live_tokens()}

    # --- a scrape -----------------------------------------------------------------------------

    def text(self, others: Iterable[Samples] = ()) -> bytes:
        """The metrics as Prometheus text, with the numbers of other processes added."""
        self._ask()
        return text(self._shown, self._more(others))

    def open_metrics(self, others: Iterable[Samples] = ()) -> bytes:
        self._ask()
        return open_metrics(self._shown, self._more(others))

    def samples(self, kinds: Collection[Kind] = ADDED_KINDS) -> Samples:
        """The samples that may be added to those of other processes."""
        self._ask()
        return {
            name: [(labels, value) for labels, value in family.samples()]
            for name, family in self._families.items()
            if family.kind in kinds and name not in self._shared
            if family.kind != "gauge" or name in ADDED_GAUGES
        }

    def _ask(self) -> None:
        for ask in self._asks:
            ask()

    def _more(self, others: Iterable[Samples]) -> More:
        total = added(*others)
        return {
            id(family): dict(_as_kept(total[name]))
            for name, family in self._families.items()
            if name in total
        }


async def no_siblings() -> Sequence[Samples]:
    """No numbers, for a process that is alone."""
    return ()


def added(*processes: Samples) -> Samples:
    """The numbers of several processes, added up."""
    return {
        name: list(summed(*(_as_kept(one.get(name, ())) for one in processes)).items())
        for name in dict.fromkeys(chain(*processes))
    }


def _as_kept(samples: Iterable[Sequence[Any]]) -> Iterator[tuple[Labels, Any]]:
    """Samples with tuples where JSON has lists."""
    for labels, value in samples:
        yield tuple(labels), tuple(value) if isinstance(value, list) else value


def _resident_bytes() -> float:
    """The resident memory by Linux; 0 on other systems."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0

"""What a scrape says, as prometheus-client reads it."""

from __future__ import annotations

from time import process_time

import pytest

from tests.support.hold import slowness
from tests.support.metrics_judge import read_open_metrics, read_text, samples
from trt_responses.features.metrics.families import (
    Counter,
    Histogram,
    Reading,
    Shown,
    open_metrics,
    text,
)

ODD = 'a"b\\c\nd%s{},'


def counted() -> list[Shown]:
    requests, gaps = Counter("path", "status"), Histogram((0.1, 0.5, 2))
    requests.add("/a", "200", by=3)
    requests.add(ODD, "500")
    for value, times in ((0.05, 1), (0.1, 2), (0.3, 1), (9.0, 1)):
        gaps.observe(value, times)
    return [
        Shown("app_requests", "All of\nthem \\ here.", requests),
        Shown("app_gap_seconds", "Between.", gaps),
        Shown("other_gap_seconds", "The same.", gaps, fixed={"model": ODD}),
        Shown("app_temperature", "Now.", Reading("gauge", (), lambda: {(): -1.5})),
        Shown("app_build", "It.", Reading("info", ("version",), lambda: {("1.0",): 1})),
        Shown("app_none", "Nothing yet.", Counter("kind")),
        Shown(
            "good",
            "Some of them.",
            requests,
            renamed={("/a", "200"): ("fine",)},
            names=("how",),
        ),
    ]


def test_both_formats_say_the_same_and_are_read_by_prometheus_client() -> None:
    plain = samples(read_text(text(counted())))
    assert plain == samples(read_open_metrics(open_metrics(counted())))
    none: frozenset[tuple[str, str]] = frozenset()
    assert plain["app_requests_total", frozenset({("path", "/a"), ("status", "200")})] == 3
    assert plain["app_requests_total", frozenset({("path", ODD), ("status", "500")})] == 1
    for name, fixed in (("app_gap_seconds", none), ("other_gap_seconds", {("model", ODD)})):
        buckets = [plain[f"{name}_bucket", frozenset({("le", le), *fixed})] for le in BOUNDS]
        assert buckets == [3, 4, 4, 5], "a value on a bound is within it"
        assert plain[f"{name}_count", frozenset(fixed)] == 5
        assert plain[f"{name}_sum", frozenset(fixed)] == pytest.approx(9.55)
    assert plain["app_temperature", none] == -1.5
    assert plain["app_build_info", frozenset({("version", "1.0")})] == 1
    assert plain["good_total", frozenset({("how", "fine")})] == 3
    assert not [name for name, _ in plain if name.startswith("app_none")]


BOUNDS = ("0.1", "0.5", "2.0", "+Inf")


def test_types_and_help_are_said_for_each_format() -> None:
    for families in (
        read_text(text(counted())),
        read_open_metrics(open_metrics(counted())),
    ):
        found = {family.name: family for family in families}
        assert found["app_requests"].documentation == "All of\nthem \\ here."
        assert found["app_requests"].type == "counter"
        assert found["app_gap_seconds"].type == "histogram"
        assert found["app_temperature"].type == "gauge"


def test_a_scrape_of_836_lines_takes_less_than_half_a_millisecond() -> None:
    """Least CPU time of several: the machine may be busy."""
    shown = []
    for number in range(10):
        times = Histogram([n / 7 for n in range(1, 40)])
        for n in range(300):
            times.observe(n / 40)
        shown += [Shown(f"h{number}_seconds", "Times.", times, fixed={"m": m}) for m in "ab"]
    assert text(shown).count(b"\n") >= 836
    spent_s = []
    for _ in range(50):
        begun_s = process_time()
        text(shown)
        spent_s.append(process_time() - begun_s)
    assert min(spent_s) < 0.0005 * slowness()

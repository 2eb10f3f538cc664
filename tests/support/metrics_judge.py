"""What prometheus-client reads in a scrape. It judges tests, and is nothing that serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import parser
from prometheus_client.openmetrics import parser as open_parser

if TYPE_CHECKING:
    from collections.abc import Iterable

Sample = tuple[str, frozenset[tuple[str, str]]]


def read_text(scraped: bytes) -> list[Any]:
    return list(parser.text_string_to_metric_families(scraped.decode()))


def read_open_metrics(scraped: bytes) -> list[Any]:
    """It refuses much that Prometheus lets pass."""
    return list(open_parser.text_string_to_metric_families(scraped.decode()))  # type: ignore[no-untyped-call]


def samples(families: Iterable[Any]) -> dict[Sample, float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


class Scrape:
    """The samples of one scrape of `/metrics`, as Prometheus text."""

    def __init__(self, body: bytes) -> None:
        self.all = samples(read_text(body))

    def sum(self, name: str, **labels: str) -> float:
        """Over all samples of the name that have these labels."""
        wanted = labels.items()
        return sum(v for (n, found), v in self.all.items() if n == name and found >= wanted)

    def ours(self, name: str, **labels: str) -> float:
        return self.sum(f"trt_responses_{name}", **labels)

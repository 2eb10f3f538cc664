"""One measurement of all servers, printed and written: table, JSON and picture."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from bench import machine
from bench.servers.measure import REPEATS, STREAMS, measured
from bench.servers.picture import svg
from bench.servers.plays import KINDS
from bench.servers.table import markdown, write_into
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from bench.servers.measure import Results

RESULTS = Path(__file__).parents[1] / "results"
DOCS = Path(__file__).parents[2] / "docs"
PICTURE, PAGE = "images/beside-others.svg", "performance.md"


def run(
    peers: Sequence[str],
    console: Console,
    *,
    streams: Sequence[int] = STREAMS,
    repeats: int = REPEATS,
    kinds: Sequence[str] = KINDS,
    docs: bool = False,
) -> None:
    """Measure, print the table, and write it beside the JSON and the picture; `docs`: into the
    documentation too."""
    with console.status("measuring servers") as status:
        results = measured(
            *(vocabularies.load(), peers),
            streams=streams,
            repeats=repeats,
            kinds=kinds,
            say=status.update,
        )
    path = RESULTS / machine.folder() / f"{time.strftime('%Y%m%d-%H%M%S')}-servers.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine.facts(), "load_after": machine.load(), **asdict(results)}
    path.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    picture = drawn(results)
    path.with_suffix(".md").write_text(markdown(results))
    path.with_suffix(".svg").write_text(picture)
    if docs:
        (DOCS / PICTURE).write_text(picture)
        write_into(DOCS / PAGE, results)
    console.print(markdown(results), markup=False, soft_wrap=True)
    console.print(f"{results.seconds:.0f} s, load average {machine.load():.1f} after; {path}")


def drawn(results: Results) -> str:
    facts = machine.facts()
    where = f"{facts['cores']} cores of {facts['cpu']}, {time.strftime('%B %Y')}"
    runs = max((len(row.runs) for row in results.rows), default=0)
    return svg(
        results.rows,
        "What a front end costs: CPU time of its processes, of one core",
        f"Medians of {runs} runs in turns, bars are quartiles; {where}",
    )

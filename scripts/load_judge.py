"""Load the server with NVIDIA's aiperf, one request in ten cut off by its client, and judge.

aiperf brings 125 packages of its own, so it lives in an environment of its own, whose program is
named by `--aiperf`. The server is a process with the demo engine; its memory and its engine's are
measured twice a second. The status is 1 when a request failed that no client cut off, when the
server counts one as failed or still running, or when memory grew after the first quarter.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from rich.console import Console
from rich.table import Table

from scripts.faults.servers import Server, resident_mib
from trt_responses.tokens import vocabulary

RANKS_URL = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
"""What aiperf's own tokenizer would download: it looks for it under this URL's digest first."""
CUT_PERCENT = 10
CUT_AFTER_S = 0.2
GROWTH_MIB = 24.0
"""Explanations and histories that were read are kept up to 8 MiB each; the rest is the heap's."""
TURNS = 3
ROWS = (
    ("time_to_first_token", "time to first token"),
    ("inter_token_latency", "between two tokens"),
    ("request_latency", "whole request"),
)


class Memory(threading.Thread):
    """Resident memory of a process and its children, in MiB, looked at until `stop`."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._ended = threading.Event()
        self.samples: list[float] = []

    def run(self) -> None:
        while not self._ended.wait(0.5):
            processes = [self._server.process.pid, *self._server.children()]
            self.samples.append(sum(resident_mib(pid) for pid in processes))

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def quarters(self) -> list[float]:
        """The median of each quarter of the time."""
        length = max(1, len(self.samples) // 4)
        return [statistics.median(self.samples[n * length : (n + 1) * length]) for n in range(4)]


class Loaded(NamedTuple):
    report: dict[str, Any]
    """aiperf's own, as it writes it."""
    memory: list[float]
    ended: dict[str, float]
    """The server's responses, by how they ended."""
    running: float


def loaded(aiperf: str, requests: int, concurrency: int, folder: Path) -> Loaded:
    server = Server(folder, api_keys="", log_level="info")
    memory = Memory(server)
    try:
        server.start()
        server.ready()
        memory.start()
        subprocess.run(
            command(aiperf, server.port, requests, concurrency, folder),
            env=os.environ | {"TIKTOKEN_CACHE_DIR": str(ranks(folder)), "HF_HUB_OFFLINE": "1"},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        memory.stop()
        report = orjson.loads((folder / "profile_export_aiperf.json").read_bytes())
        _, metrics = server.ask("GET", "/metrics")
    finally:
        server.end()
    numbers = prometheus(metrics.decode())
    ended = {
        end: numbers[f'trt_responses_responses_total{{end="{end}"}}']
        for end in ("completed", "incomplete", "failed", "cancelled")
    }
    return Loaded(report, memory.quarters(), ended, numbers["trt_responses_responses_running"])


def prometheus(text: str) -> defaultdict[str, float]:
    """Each number of a page of metrics, by its name with its labels; 0 for a missing one."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return defaultdict(float, {name: float(value) for name, _, value in lines})


def command(
    aiperf: str, port: int, requests: int, concurrency: int, folder: Path
) -> tuple[str, ...]:
    options = {
        "model": "demo",
        "tokenizer": "builtin",
        "url": f"http://127.0.0.1:{port}",
        "endpoint-type": "responses",
        "concurrency": concurrency,
        "request-count": requests,
        "conversation-num": requests // TURNS,
        "conversation-turn-mean": TURNS,
        "conversation-turn-stddev": 0,
        "synthetic-input-tokens-mean": 100,
        "request-cancellation-rate": CUT_PERCENT,
        "request-cancellation-delay": CUT_AFTER_S,
        "random-seed": 7,
        "ui": "none",
        "artifact-dir": folder,
    }
    given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    return (aiperf, "profile", "--streaming", *given)


def ranks(folder: Path) -> Path:
    """A directory in which aiperf finds its tokenizer's file without a download."""
    vocabulary.load()  # it is unpacked there
    found = Path(os.environ[vocabulary.ENCODINGS_BASE]) / vocabulary.RANKS_FILE
    shutil.copy(found, folder / hashlib.sha1(RANKS_URL.encode()).hexdigest())
    return folder


def show(found: Loaded) -> bool:
    """Print the report; whether all is as it should be."""
    report, console = found.report, Console(width=100)
    version = report["aiperf_version"]
    table = Table(title=f"aiperf {version} --endpoint-type responses, ms", title_justify="left")
    for column in ("", "p50", "p90", "p99"):
        table.add_column(column, justify="right" if column else "left")
    for name, title in ROWS:
        table.add_row(title, *(f"{report[name][each]:.0f}" for each in ("p50", "p90", "p99")))
    console.print(table)
    faults = [(e["error_details"]["type"], e["count"]) for e in report["error_summary"]]
    cut = sum(count for kind, count in faults if kind == "RequestCancellationError")
    failed = [(kind, count) for kind, count in faults if kind != "RequestCancellationError"]
    whole = int(report["request_count"]["avg"])
    print(f"{whole} requests answered, {cut} cut off, {failed or 'none'} failed")
    print(f"the server's own count: {found.ended}, {found.running:g} running")
    print("resident memory by quarters, MiB:", *(f"{each:.0f}" for each in found.memory))
    grown = found.memory[-1] - found.memory[1]
    was_run = report["input_config"] is not None and cut > 0
    return (
        was_run
        and not failed
        and not found.running
        and not found.ended["failed"]
        and grown < GROWTH_MIB
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="make aiperf", description=__doc__)
    parser.add_argument("--aiperf", default="aiperf", help="the program; without: on the PATH")
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--concurrency", type=int, default=16)
    chosen = parser.parse_args()
    if (program := shutil.which(chosen.aiperf)) is None:
        sys.exit(
            f"{chosen.aiperf} was not found. It wants an environment of its own: `python -m venv "
            "aiperf && aiperf/bin/pip install aiperf`, then `make aiperf AIPERF=aiperf/bin/aiperf`."
        )
    with tempfile.TemporaryDirectory() as folder:
        found = loaded(os.path.abspath(program), chosen.requests, chosen.concurrency, Path(folder))
    return 0 if show(found) else 1


if __name__ == "__main__":
    sys.exit(main())

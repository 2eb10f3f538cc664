"""`python -m bench.servers`: this server beside Rust front ends, each in processes of its own."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rich.console import Console

from bench import machine
from bench.servers.measure import REPEATS, STREAMS
from bench.servers.plays import KINDS
from bench.servers.report import PAGE, PICTURE, run
from bench.servers.start import CONTENDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

NOISY = 3


def main(argv: Sequence[str] | None = None) -> int:
    wanted = _arguments(argv)
    console = Console()
    if machine.is_busy() and not wanted.anyway:
        console.print(f"Load average {machine.load():.1f} on {machine.cores()} cores: wait, or say")
        console.print("--anyway, which measures the neighbours' time too.")
        return NOISY
    run(
        *(wanted.peers, console),
        streams=wanted.streams,
        repeats=wanted.repeats,
        kinds=wanted.kinds,
        docs=wanted.docs,
    )
    return 0


def _names(given: str) -> tuple[str, ...]:
    return tuple(filter(None, given.split(",")))


def _numbers(given: str) -> tuple[int, ...]:
    return tuple(map(int, given.split(",")))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.servers", description=__doc__)
    others = [name for name in CONTENDERS if name != "ours"]
    parser.add_argument("--peers", default=tuple(others), help=", ".join(others), type=_names)
    parser.add_argument("--streams", default=STREAMS, help=f"default: {STREAMS}", type=_numbers)
    parser.add_argument("--kinds", default=KINDS, help=f"of {', '.join(KINDS)}", type=_names)
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"default: {REPEATS}")
    parser.add_argument("--anyway", action="store_true", help="run on a busy machine too")
    docs = f"write the picture and the table into docs/: {PICTURE}, {PAGE}"
    parser.add_argument("--docs", action="store_true", help=docs)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

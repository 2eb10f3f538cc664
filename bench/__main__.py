"""`python -m bench`: the server beside the floor, in one run, as ratios."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop
from rich.console import Console

from bench import (
    beside,
    burst,
    burst_gaps,
    chat,
    embedded,
    fleet,
    inprocess,
    machine,
    memory,
    peer_apps,
    peers,
    prepare,
    report,
    segments,
    stores,
    tensorrt_layer,
    wire,
)
from bench.asgi import living
from bench.check import Wrong
from bench.goals import draw
from bench.ours import Playing
from bench.script import CHUNKS, LENGTHS
from bench.servers import report as servers
from bench.servers.start import CONTENDERS
from trt_responses.cli.building import prepare_demo
from trt_responses.features.long_runs.runs import Runs
from trt_responses.prepare.files import MODEL
from trt_responses.settings import Settings
from trt_responses.tokens import vocabulary as vocabularies
from trt_responses.tokens.tokenise import Tokeniser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.tokens.vocabulary import Vocabulary

PARTS = (
    *("inprocess", "wire", "burst", "beside", "frontends", "embedded"),
    *("peers", "servers", "stores", "segments", "prepare", "tensorrt"),
)
STREAMS = (1, 64, 256)
RESULTS = Path(__file__).parent / "results"

RUST = tuple(name for name in CONTENDERS if name != "ours")
"""Peers that are processes of their own."""

RIGHT, WRONG, NOISY = 0, 1, 3

DESCRIPTION = """\
Times the server against the floor: a raw ASGI app that sends the same frames, made beforehand,
over the same server and the same steps of an engine. A ratio of 1.5 means that the server spends
half as much again as the least that is possible. Only CPU time counts (but for embedded and burst),
contenders take turns, and before any time is shown each contender's text is compared with the
script, letter for letter.

  inprocess   the app called without sockets: what our own code costs for each token, and a token
              of a chat completion beside one of a response
  wire        under uvicorn, over TCP, with 1, 64 and 256 streams as fast as they can
  burst       first deltas of 64 and 256 short requests that come at once: p99 by p50;
              gaps of 16 running streams beside bursts, by those of the 16 alone
  beside      request to first delta, scrapes, long prompts, hostile texts, stored responses
  frontends   two front ends beside one over an engine process, and the engine in the web process
  embedded    the demo's tokens a second through the server, by those of its engine itself
  peers       other servers' code over the same script, in process: --peers names them
  servers     other servers' processes over the same script: --peers names them
  stores      what each kind of store adds to a response's end, and how many it takes a second
  segments    what one more engine request costs inside a response, free and guided, on the demo
  prepare     seconds for the demo, memory for a 20b-shaped checkpoint (3.3 GB in TMPDIR meanwhile)
  tensorrt    one 20b layer compiled for two families of GPUs (8 GB in TMPDIR meanwhile); only
              where the extra is installed
"""

EPILOG = """\
A table goes to the terminal, all repeats as JSON to bench/results/. Exit status: 0, also when a
goal is missed, which the table says; 1, a contender answered wrongly; 3, the machine was too busy:
more processes than cores before the start, or a floor whose repeats differ by more than 1.4 times.
bench/README.md says what each number means and how to find where the time goes.
"""


ARGUMENTS: dict[str, dict[str, Any]] = {
    "parts": {
        "nargs": "*",
        "choices": (*PARTS, []),
        "metavar": "part",
        "help": f"any of {', '.join(PARTS)}; all of them when none is named",
    },
    "--quick": {
        "action": "store_true",
        "help": "under a minute: two lengths, one id a step, 64 streams, no traps, no memory; "
        "and only the first three parts",
    },
    "--repeats": {"type": int, "default": 5, "help": "of each row (default: 5)"},
    "--layers": {
        "type": int,
        "default": prepare.FEW,
        "help": f"of the 20b-shaped checkpoint to prepare (default: {prepare.FEW}; 24: 13.8 GB)",
    },
    "--anyway": {
        "action": "store_true",
        "help": "run on a busy machine too, and print noisy ratios, marked as such",
    },
    "--peers": {
        "type": lambda given: tuple(filter(None, given.split(","))),
        "default": (),
        "metavar": "NAMES",
        "help": f"of {', '.join((*peer_apps.PEERS, *RUST))}: put beside ours what can be had",
    },
    "--json": {"type": Path, "metavar": "PATH", "help": "where to write the results"},
}


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for names, options in ARGUMENTS.items():
        parser.add_argument(*names.split(), **options)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    wanted = arguments(argv)
    console = Console()
    if machine.is_busy() and not wanted.anyway:
        console.print(
            f"Load average {machine.load():.1f} on {machine.cores()} cores: whatever was measured "
            "now would be the neighbours' time too. Wait, or say --anyway."
        )
        return NOISY
    results = report.Report(
        machine.facts(peer_apps.PACKAGES if wanted.peers else ()), machine.load()
    )
    try:
        _measure(results, wanted, console)
    except Wrong as wrong:
        console.print(f"[red]Void:[/] {wrong}")
        return WRONG
    results.load_after = machine.load()
    path = wanted.json or RESULTS / machine.folder() / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    report.write(results, path)
    report.show(results, console, anyway=wanted.anyway)
    draw(results, path, console)
    console.print(
        f"Load average {results.load_before:.1f} before, {results.load_after:.1f} after; {path}"
    )
    return NOISY if results.noisy and not wanted.anyway else RIGHT


def _measure(results: report.Report, wanted: argparse.Namespace, console: Console) -> None:
    parts = wanted.parts or PARTS
    vocabulary = vocabularies.load()
    with console.status("measuring"), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_in_this_process(results, parts, wanted, vocabulary))
    if "wire" in parts:
        with console.status("measuring over TCP"):
            streams = (64,) if wanted.quick else STREAMS
            results.wire = wire.rows(vocabulary, LENGTHS[0], 1, streams, wanted.repeats)
    if "servers" in parts and (rust := [name for name in wanted.peers if name in RUST]):
        servers.run(rust, console)
    if "burst" in parts and not wanted.quick:
        with console.status("measuring bursts"):
            results.bursts = burst.rows(vocabulary, wanted.repeats)
            results.burst_gaps = burst_gaps.row(vocabulary, wanted.repeats)
    if "beside" in parts and not wanted.quick:
        with console.status("measuring memory"):
            results.stored_mib = memory.measured()
    if "frontends" in parts and not wanted.quick:
        engines_dir = _prepared()
        with console.status("measuring front ends"):
            results.fleet = fleet.rows(vocabulary, LENGTHS[0], engines_dir, wanted.repeats)
    if "embedded" in parts and not wanted.quick:
        engines_dir = _prepared()
        with console.status("measuring the embedded engine"):
            results.embedded = embedded.rows(engines_dir, wanted.repeats)
    if "stores" in parts and not wanted.quick:
        with console.status("measuring stores"), asyncio.Runner() as runner:
            results.stores = runner.run(stores.measured_rows())
    if "segments" in parts and not wanted.quick:
        model = prepare_demo(Settings.from_environment()) / MODEL
        with console.status("measuring segments"):
            results.segments = asyncio.run(segments.measure(model))
    if "prepare" in parts and not wanted.quick:
        with console.status("measuring preparation"):
            results.prepared |= prepare.measured(wanted.layers)
    if "tensorrt" in parts and not wanted.quick and tensorrt_layer.is_possible():
        with console.status("measuring TensorRT's compiler"):
            results.prepared |= tensorrt_layer.measured()


def _prepared() -> Path:
    """The directory of engines, with the demo in it."""
    settings = Settings.from_environment()
    prepare_demo(settings)
    return settings.engines_dir


async def _in_this_process(
    results: report.Report, parts: Sequence[str], wanted: argparse.Namespace, vocabulary: Vocabulary
) -> None:
    lengths, chunks = ((LENGTHS[0], LENGTHS[-1]), (1,)) if wanted.quick else (LENGTHS, CHUNKS)
    playing = Playing()
    async with living(playing.app):
        if "inprocess" in parts:
            results.inprocess = await inprocess.rows(
                vocabulary, playing, lengths, chunks, wanted.repeats
            )
            results.chat = await chat.row(vocabulary, playing, lengths[0], wanted.repeats)
        imported = [name for name in wanted.peers if name not in RUST]
        if "peers" in parts and imported:
            ours = partial(playing.play, chunk=1)
            results.peers = await peers.rows(
                vocabulary, ours, (LENGTHS[0], LENGTHS[-1]), imported, wanted.repeats
            )
        if "beside" in parts:
            results.first_delta = await beside.first_delta(vocabulary, LENGTHS[0])
            results.scrapes = await beside.scrapes(vocabulary, playing, LENGTHS[0], wanted.repeats)
    if "beside" in parts:
        await _prompts(results, wanted, vocabulary)


async def _prompts(
    results: report.Report, wanted: argparse.Namespace, vocabulary: Vocabulary
) -> None:
    tokeniser = Tokeniser(vocabulary)
    tokeniser.long_runs = Runs(tokeniser.native, tokeniser.token_bytes)
    results.next_turn = await beside.next_turn(vocabulary, tokeniser, wanted.repeats)
    if not wanted.quick:
        for name, text in beside.trap_texts().items():
            results.traps.append(await beside.trap(tokeniser, name, text))


if __name__ == "__main__":
    sys.exit(main())

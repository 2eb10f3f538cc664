"""Examine the demo model: `python -m scripts.eval_demo`, or `make demo-eval`.

Expands engines/demo-source, prepares it as `make engine` does, asks through the embedded engine
with greedy decoding, writes engines/demo-source/report.json and prints its tables.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from scripts.demo import evaluate, unused
from scripts.demo.table import markdown
from scripts.demo.wordings import SOURCE
from scripts.gguf_model import convert
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.demo import COMPACT, expand
from trt_responses.prepare.llamacpp.gguf import WEIGHT_TYPES
from trt_responses.tokens import vocabulary

if TYPE_CHECKING:
    from trt_responses.prepare.llamacpp.gguf import WeightType

CONTEXT_TOKENS = 4_096


def main() -> int:
    given = _arguments()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as scratch:
        report = examine(given, Path(scratch), console)
    if given.write:
        text = json.dumps(report, indent=1) + "\n"
        (given.source / "report.json").write_text(text, "utf-8")
    print(markdown(report))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, default=SOURCE, help="the compact source")
    parser.add_argument("--each", type=int, default=50, help="prompts per family and wording kind")
    parser.add_argument(
        "--seed", type=int, default=4, help="of the questions; training uses others"
    )
    parser.add_argument("--weights", choices=WEIGHT_TYPES, default="q8_0", help="of the GGUF")
    parser.add_argument("--slots", type=int, default=8, help="requests at once")
    parser.add_argument("--threads", type=int, default=2, help="of the engine")
    parser.add_argument("--no-write", dest="write", action="store_false", help="leave report.json")
    return parser.parse_args()


def examine(given: argparse.Namespace, scratch: Path, console: Console) -> dict[str, object]:
    weights: WeightType = given.weights
    expand(given.source, scratch / "checkpoint")
    checkpoint = open_checkpoint(scratch / "checkpoint")
    convert(checkpoint, scratch / "demo.gguf", vocabulary.load(), weight_type=weights)
    engine = LlamaCppEngine(
        scratch / "demo.gguf",
        context_tokens=CONTEXT_TOKENS,
        slots=given.slots,
        threads=given.threads,
    )
    found = asyncio.run(_evaluated(engine, given.each, given.seed, console))
    console.print("mass on unused ids")
    return {
        "weights_sha256": _sha256(given.source / COMPACT),
        "wordings_sha256": _sha256(SOURCE / "wordings.json"),
        "wordings_two_sha256": _sha256(SOURCE / "wordings_two.json"),
        "wordings_three_sha256": _sha256(SOURCE / "wordings_three.json"),
        "wordings_four_sha256": _sha256(SOURCE / "wordings_four.json"),
        "weight_type": weights,
        "seed": given.seed,
        **found,
        "unused_mass": unused.mass(checkpoint, given.source, given.seed),
    }


async def _evaluated(
    engine: LlamaCppEngine, each: int, seed: int, console: Console
) -> dict[str, object]:
    await engine.start()
    try:
        return await evaluate.examined(engine, each, seed, console.print)
    finally:
        await engine.stop(5.0)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())

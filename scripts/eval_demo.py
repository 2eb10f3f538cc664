"""Examine the demo model: `python -m scripts.eval_demo`, or `make demo-eval`.

Expands engines/demo-source, prepares it as `make engine` does, asks through the embedded engine
with greedy decoding, writes engines/demo-source/report.json and prints its tables. `--strangers`
asks 500 questions that training has not seen instead, through a server, greedily and at 1.
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

from scripts.demo import evaluate, strangers, unused
from scripts.demo.table import markdown
from scripts.demo.wordings import SOURCE
from scripts.gguf_model import convert
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.features.card.install import StrictTools
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.demo import COMPACT, expand
from trt_responses.prepare.llamacpp.gguf import WEIGHT_TYPES
from trt_responses.prepare.note import card_fields
from trt_responses.tokens import vocabulary

if TYPE_CHECKING:
    from trt_responses.prepare.checkpoint.open import Checkpoint

CONTEXT_TOKENS = 4_096


def main() -> int:
    given = _arguments()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as scratch:
        if given.strangers:
            print(asyncio.run(_judged(given, Path(scratch), console)))
            return 0
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
    parser.add_argument("--strangers", action="store_true", help="the 500 questions of strangers")
    parser.add_argument("--answers", type=Path, help="where their answers go, a line each")
    parser.add_argument("--no-write", dest="write", action="store_false", help="leave report.json")
    return parser.parse_args()


async def _judged(given: argparse.Namespace, scratch: Path, console: Console) -> str:
    """The table of the strangers' questions."""
    questions = strangers.strangers()
    engine, _ = _engine(given, scratch, 2 * CONTEXT_TOKENS + 1_024)
    features = _features(given.source)
    greedy = await strangers.marks(engine, questions, 0.0, given.slots, features)
    console.print("temperature 1")
    engine, _ = _engine(given, scratch, 2 * CONTEXT_TOKENS + 1_024)
    drawn = await strangers.marks(engine, questions, 1.0, given.slots, features)
    if given.answers is not None:
        lines = (
            json.dumps([one.family, question.request["input"], one.grade, one.answer])
            for question, one in zip(questions * 2, greedy + drawn, strict=True)
        )
        given.answers.write_text("\n".join(lines) + "\n", "utf-8")
    return strangers.table(greedy, drawn)


def _features(source: Path) -> tuple[StrictTools, ...]:
    """What the engine's card sets besides a temperature."""
    strict = card_fields([source / "config.json"]).get("strict_tools", False)
    return (StrictTools(schema_s=1.0),) if strict else ()


def _engine(
    given: argparse.Namespace, scratch: Path, context_tokens: int
) -> tuple[LlamaCppEngine, Checkpoint]:
    """An engine over the prepared weights, which is not started, and their checkpoint."""
    if not (scratch / "checkpoint").exists():
        expand(given.source, scratch / "checkpoint")
    checkpoint = open_checkpoint(scratch / "checkpoint")
    gguf = scratch / "demo.gguf"
    if not gguf.exists():
        convert(checkpoint, gguf, vocabulary.load(), weight_type=given.weights)
    slots, threads = given.slots, given.threads
    return LlamaCppEngine(
        gguf, context_tokens=context_tokens, slots=slots, threads=threads
    ), checkpoint


def examine(given: argparse.Namespace, scratch: Path, console: Console) -> dict[str, object]:
    engine, checkpoint = _engine(given, scratch, CONTEXT_TOKENS)
    found = asyncio.run(_evaluated(engine, given.each, given.seed, console))
    console.print("mass on unused ids")
    return {
        "weights_sha256": _sha256(given.source / COMPACT),
        "wordings_sha256": _sha256(SOURCE / "wordings.json"),
        "wordings_two_sha256": _sha256(SOURCE / "wordings_two.json"),
        "wordings_three_sha256": _sha256(SOURCE / "wordings_three.json"),
        "wordings_four_sha256": _sha256(SOURCE / "wordings_four.json"),
        "weight_type": given.weights,
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

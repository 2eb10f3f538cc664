"""Train the demo model: `python -m scripts.train_demo`, or `make demo-train`.

Makes conversations from templates, trains a tiny gpt-oss on them, and writes beside
engines/demo-source/wordings.json (which training only compares itself with):

  config.json, compact.safetensors   the weights, of used vocabulary rows only
  training.png                       loss and accuracy by family

Stops after 36 minutes at the latest. `--tune engines/demo-source --minutes 12` goes on from weights
that know the families: the vocabulary's rows stay, the layers learn a mix of what was still wrong,
and the result is the mean of both. Then `make demo-eval` examines what came out, through the
engine that serves it, and `make engine` prepares it. Needs PyTorch and matplotlib:
`pip install trt-responses[demo-train]`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from scripts.demo.wordings import SOURCE

if TYPE_CHECKING:
    from scripts.demo import train


WARMUP = 80


def main() -> int:
    given = _arguments()
    try:
        from scripts.demo import compact, plot, train
    except ModuleNotFoundError as error:
        print(f"{error.name} is missing: pip install torch==2.13.0 matplotlib", file=sys.stderr)
        return 1
    console = Console()
    plan = train.Plan(
        given.steps,
        given.minutes,
        seed=given.seed,
        peak=given.peak,
        begin=given.begin,
        tune=given.tune,
        kept=given.kept,
        warmup=WARMUP if given.begin is None and given.tune is None else WARMUP // 4,
        **_of_device(given),
    )
    began, cpu = time.monotonic(), time.process_time()
    with Progress(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task("making conversations", total=1.0)
        model, known, progress = train.train(
            plan,
            lambda seen, done: bar.update(task, completed=done, description=_line(seen)),
        )
    compact.write(model, known, given.out)
    if given.tune is None:
        plot.draw(progress, given.out / "training.png")
        console.print(_table(progress))
    spent = f"{time.monotonic() - began:.0f} s, {time.process_time() - cpu:.0f} s of processor time"
    console.print(f"{len(progress.steps)} steps in {spent}; weights in {given.out}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=SOURCE, help="where the weights go")
    parser.add_argument("--minutes", type=float, default=35.0, help="the time budget")
    parser.add_argument("--steps", type=int, default=10_000, help="the step budget")
    parser.add_argument("--seed", type=int, default=2026, help="of weights and conversations")
    parser.add_argument("--processes", type=int, default=2, help="on the CPU")
    parser.add_argument("--device", default="cpu", help="cpu (default), or cuda: one GPU")
    parser.add_argument("--begin", type=Path, help="a compact source to go on from")
    parser.add_argument("--tune", type=Path, help="a compact source to tune, by a mix of its own")
    parser.add_argument("--float32", action="store_true", help="for CPUs without bfloat16")
    parser.add_argument("--kept", type=Path, help="where its state is kept, and found when cut")
    parser.add_argument("--peak", type=float, default=3e-3, help="the highest rate of learning")
    return parser.parse_args()


def _of_device(given: argparse.Namespace) -> dict[str, Any]:
    """A GPU takes larger steps, and compares each token with all others. A tuning takes smaller
    ones on the CPU, of which it has few."""
    if given.device == "cpu":
        less = {"tokens": 1_536, "longest": 2_048} if given.tune else {}
        return {"processes": given.processes, "float32": given.float32, **less}
    makers = max(1, (os.cpu_count() or 2) - 2)
    larger = {"tokens": 16_384, "prompt_share": 0.1, "note_every": 10, "keep_every": 1_000}
    alone = {"device": given.device, "processes": 1, "makers": makers, "whole": True}
    return {**alone, **larger, "check_every": 2_500}


def _line(progress: train.Progress) -> str:
    recent = progress.losses[-50:]
    return f"step {len(progress.steps)}, loss {sum(recent) / len(recent):.3f}"


def _table(progress: train.Progress) -> Table:
    table = Table("family", "loss", "seen", "held back", title="whole replies right at the end")
    _, seen, held = progress.checks[-1]
    for name in sorted(seen):
        loss = progress.family_losses.get(name, float("nan"))
        table.add_row(name, f"{loss:.4f}", f"{seen[name]:.0%}", f"{held[name]:.0%}")
    return table


if __name__ == "__main__":
    sys.exit(main())

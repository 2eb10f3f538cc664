"""Loss and accuracy of a training run, as one picture. Knows matplotlib and the run's progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("Agg")  # before pyplot: no window, no display
from matplotlib import pyplot

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from scripts.demo.train import Progress

STYLES = ("-", "--", ":", "-.")


def draw(progress: Progress, path: Path) -> None:
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(17, 5.5), layout="constrained")
    _losses(left, progress)
    steps = [step for step, _, _ in progress.checks]
    _accuracies(
        middle,
        steps,
        [seen for _, seen, _ in progress.checks],
        "whole replies right, seen wordings",
    )
    _accuracies(
        right,
        steps,
        [held for _, _, held in progress.checks],
        "whole replies right, held-back wordings",
    )
    right.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _losses(axes: Axes, progress: Progress) -> None:
    for number, name in enumerate(sorted(progress.family_curves)):
        steps, losses = zip(*progress.family_curves[name], strict=True)
        axes.plot(steps, losses, STYLES[number // 10], linewidth=1)
    axes.set(title="loss per reply token, by family", xlabel="step", yscale="log")


def _accuracies(axes: Axes, steps: list[int], checks: list[dict[str, float]], title: str) -> None:
    for number, name in enumerate(sorted(checks[-1])):
        shares = [check[name] for check in checks]
        axes.plot(steps, shares, STYLES[number // 10], label=name.replace("_", " "), linewidth=1)
    axes.set(title=title, xlabel="step", ylim=(-0.02, 1.02))

"""Writes the measurements of a preparation, as JSON and as one plot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence  # read by dataclasses
from dataclasses import asdict
from html import escape
from pathlib import Path

from trt_responses.files import write_whole
from trt_responses.frozen import dataclass
from trt_responses.prepare.trtllm.warmup import Start  # likewise

REPORT = "warmup_report.json"
PLOT = "warmup.svg"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 70, 20, 40, 50
LINE = "#3b6fb6"


@dataclass(frozen=True, slots=True)
class Report:
    """The measurements of a preparation."""

    package: str
    hardware: Mapping[str, str]
    arguments: Mapping[str, object]
    cold: Start
    again: Start
    """The start from the caches of the first start."""
    caches_bytes: int
    weights_bytes: int

    @property
    def same_answers(self) -> bool:
        """Whether the greedy ids of both starts are equal, the proof that the caches are sound."""
        return self.cold.answers == self.again.answers


def write_report(directory: Path, report: Report) -> None:
    """Write the report and its plot."""
    found = {**asdict(report), "same_answers": report.same_answers}
    for batch, shown in zip(report.cold.batches, found["cold"]["batches"], strict=True):
        shown["tokens_per_s"] = round(batch.tokens_per_s, 1)
    write_whole(directory / REPORT, json.dumps(found, indent=2) + "\n")
    points = [(float(batch.size), batch.tokens_per_s) for batch in report.cold.batches]
    plot = line_plot(
        points,
        title=f"{report.hardware.get('gpu', 'GPU')}, TensorRT-LLM {report.package}: warm-up",
        x_name="requests at once",
        y_name="tokens/s",
    )
    write_whole(directory / PLOT, plot)


def line_plot(
    points: Sequence[tuple[float, float]], *, title: str, x_name: str, y_name: str
) -> str:
    """The SVG of a line through points sorted by x. Both axes run from 0 to the largest value."""
    x_most = max((x for x, _ in points), default=0.0) or 1.0
    y_most = max((y for _, y in points), default=0.0) or 1.0
    placed = [(_x(x / x_most), _y(y / y_most)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{LINE}"/>' for x, y in placed)
    labels = "".join(_label(x, x_most) for x in sorted({x for x, _ in points})[-6:])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" text-anchor="middle">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f'<text x="{WIDTH / 2}" y="22" font-size="14">{escape(title)}</text>'
        f'<path d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT}" fill="none" stroke="#444"/>'
        f'<text x="{LEFT - 8}" y="{TOP + 4}" text-anchor="end">{y_most:,.0f}</text>'
        f'<text x="{LEFT - 8}" y="{HEIGHT - BOTTOM}" text-anchor="end">0</text>'
        f'<text x="{LEFT}" y="{TOP - 8}" text-anchor="start">{escape(y_name)}</text>'
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}">{escape(x_name)}</text>{labels}'
        f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>{dots}</svg>\n'
    )


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _label(x: float, x_most: float) -> str:
    return f'<text x="{_x(x / x_most):.1f}" y="{HEIGHT - BOTTOM + 18}">{x:g}</text>'

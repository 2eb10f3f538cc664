"""Writes the measurements of a preparation, as JSON and as one plot."""

from __future__ import annotations

import json
from collections.abc import Mapping  # read by dataclasses
from dataclasses import asdict
from pathlib import Path

from trt_responses.files import write_whole
from trt_responses.frozen import dataclass
from trt_responses.prepare.trtllm.plot import line_plot
from trt_responses.prepare.trtllm.warmup import Start  # likewise

REPORT = "warmup_report.json"
PLOT = "warmup.svg"


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

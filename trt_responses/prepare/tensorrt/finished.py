"""The finished work of a run over a graph and its plans, recorded until the card is written.
Records the files and their times.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from trt_responses.frozen import dataclass
from trt_responses.prepare.files import EngineFile, file_difference, read_finished
from trt_responses.prepare.graph.onnx_file import Link  # decoded by its annotation
from trt_responses.prepare.shelf.chain import CompiledPlans
from trt_responses.prepare.tensorrt.job import CompileResult  # likewise
from trt_responses.prepare.tensorrt.targets import Family


@dataclass(frozen=True, slots=True)
class FinishedPlan:
    """One compiled plan, and the facts about its compilation."""

    file: EngineFile
    family: str
    result: CompileResult


@dataclass(frozen=True, slots=True)
class Finished:
    """The graph and the plans that are complete."""

    graph: tuple[EngineFile, ...] = ()
    links: tuple[Link, ...] = ()
    plans: tuple[FinishedPlan, ...] = ()
    seconds: float = 0.0
    """Seconds to write the graph."""

    @property
    def files(self) -> tuple[EngineFile, ...]:
        return (*self.graph, *(plan.file for plan in self.plans))

    @property
    def seconds_by_phase(self) -> dict[str, float]:
        found = {"graph": self.seconds}
        for plan in self.plans:
            found[plan.family] = round(found.get(plan.family, 0.0) + plan.result.seconds, 3)
        return found

    def compiled(self, family: Family) -> CompiledPlans:
        """The compiled plans of a family."""
        plans = [made for made in self.plans if made.family == family.folder]
        return CompiledPlans(
            folder=family.folder,
            targets=family.targets,
            weights=family.weights,
            exact=all(made.result.listing.exact for made in plans),
            size_bytes=sum(made.file.size_bytes for made in plans),
            peak_bytes=max(made.result.peak_bytes for made in plans),
        )


def finished_in(directory: Path) -> Finished:
    """The complete files of an earlier run; none without a complete graph."""
    found = read_finished(directory, Finished)
    if found is None or any(file_difference(file, directory) for file in found.graph):
        return Finished()
    whole = (p for p in found.plans if file_difference(p.file, directory) is None)
    return replace(found, plans=tuple(whole))

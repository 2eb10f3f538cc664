"""What a run over a graph and its plans has finished, kept beside them until the card is written.

Knows the files and what each took; decides nothing about what is still to do.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from trt_responses.prepare import card as cards
from trt_responses.prepare.card import EngineFile  # noqa: TC001  # decoded by its annotation
from trt_responses.prepare.chain import Compiled, Link
from trt_responses.prepare.decode import decoded
from trt_responses.prepare.digests import json_or_nothing
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.tensorrt.job import Result  # noqa: TC001  # likewise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trt_responses.prepare.graph.onnx_file import Port
    from trt_responses.prepare.graph.write import Written
    from trt_responses.prepare.tensorrt.targets import Family

MADE = "made.json"


@dataclass(frozen=True, slots=True)
class MadePlan:
    file: EngineFile
    family: str
    result: Result


@dataclass(frozen=True, slots=True)
class Made:
    graph: tuple[EngineFile, ...] = ()
    links: tuple[Link, ...] = ()
    plans: tuple[MadePlan, ...] = ()
    seconds: float = 0.0
    """What writing the graph took."""

    @property
    def files(self) -> tuple[EngineFile, ...]:
        return (*self.graph, *(plan.file for plan in self.plans))

    @property
    def seconds_by_phase(self) -> dict[str, float]:
        found = {"graph": self.seconds}
        for plan in self.plans:
            found[plan.family] = round(found.get(plan.family, 0.0) + plan.result.seconds, 3)
        return found

    def compiled(self, family: Family) -> Compiled:
        plans = [made for made in self.plans if made.family == family.folder]
        return Compiled(
            folder=family.folder,
            targets=family.targets,
            weights=family.weights,
            exact=all(made.result.listing.exact for made in plans),
            size_bytes=sum(made.file.size_bytes for made in plans),
            peak_bytes=max(made.result.peak_bytes for made in plans),
        )


def keep(directory: Path, made: Made) -> None:
    cards.write_whole(directory / MADE, json.dumps(asdict(made), indent=2) + "\n")


def made_in(directory: Path) -> Made:
    """What an earlier run has left whole; without a whole graph nothing counts."""
    try:
        found = decoded(Made, json_or_nothing(directory / MADE), MADE)
    except PrepareError:
        return Made()
    if any(cards.file_difference(file, directory) for file in found.graph):
        return Made()
    whole = (p for p in found.plans if cards.file_difference(p.file, directory) is None)
    return replace(found, plans=tuple(whole))


def links_of(written: Written) -> tuple[Link, ...]:
    return tuple(
        Link(
            name=link.name,
            first=link.layers.start,
            count=len(link.layers),
            inputs=_ports(link.inputs),
            outputs=_ports(link.outputs),
        )
        for link in written.links
    )


def _ports(ports: Sequence[Port]) -> dict[str, str]:
    return {p.name: f"{p.element} {','.join(map(str, p.shape))}" for p in ports}

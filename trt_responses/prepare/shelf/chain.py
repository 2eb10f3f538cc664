"""The part of a card about a graph: its files in order, and their compiled plans.
Describes the tensors in words; opens no file.
"""

from __future__ import annotations

from typing import Literal

from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.graph.onnx_file import Element, Link  # decoded by their annotations

Flavour = Literal["rtx", "enterprise"]
"""One of NVIDIA's two TensorRT libraries."""
Format = Literal["mxfp4", "int8", "bf16", "f16", "f32"]
"""The format of the experts' weights."""


@dataclass(frozen=True, slots=True)
class CompiledPlans:
    """The plans of one family of targets, in one folder."""

    folder: str
    targets: tuple[str, ...]
    weights: Format
    exact: bool
    """Whether the weights in the plans equal those of the checkpoint."""
    size_bytes: int
    peak_bytes: int
    """The most memory that a compilation of one plan used."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of a graph, and the plans compiled from it."""

    slots: int
    length: int
    chunk: int
    top: int
    element: Element
    links: tuple[Link, ...]
    flavour: Flavour | Literal["none"]
    release: str
    """The release of the library that compiled the plans; no other release runs them."""
    compiled: tuple[CompiledPlans, ...]

    def for_target(self, target: str) -> CompiledPlans:
        """The plans for a GPU, by its compute capability such as `sm120`."""
        for family in self.compiled:
            if target in family.targets:
                return family
        known = ", ".join(name for family in self.compiled for name in family.targets)
        raise PrepareError(
            f"targets: this GPU is {target}, the engine was compiled for {known or 'none'}; "
            f"prepare it again with TARGETS={target}."
        )

"""The options of a compiled engine or a bare graph, and their values on this machine.
Has defaults that fit a laptop, and all checks before the first byte is written.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Literal

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.open import Checkpoint
from trt_responses.prepare.digests import source_facts
from trt_responses.prepare.faults import WrongInput, refusal
from trt_responses.prepare.graph.onnx_file import Element
from trt_responses.prepare.graph.weights import expert_tensors
from trt_responses.prepare.graph.write import GraphSpec, grouped
from trt_responses.prepare.shelf.card import Source
from trt_responses.prepare.shelf.chain import Format
from trt_responses.prepare.tensorrt.size import graph_bytes, group_size, plan_bytes
from trt_responses.prepare.tensorrt.targets import FORMATS, Family, default_targets, families

GraphKind = Literal["tensorrt", "onnx"]

CONVERTER = 1
"""The version of the converter, a part of every engine's version. Raise it when the same options
give other files."""
GRAPH_GROUP = 8
"""The layers in one file of a bare graph."""


@dataclass(frozen=True, slots=True)
class TensorRtOptions:
    """The operator's options."""

    kind: GraphKind = "tensorrt"
    targets: tuple[str, ...] = ()
    """The GPUs to compile for. Empty: this machine's GPU, or a choice by the checkpoint."""
    weights: Format | None = None
    slots: int = 4
    length: int = 4096
    chunk: int = 128
    """The most tokens of a prefill step. More would overflow an expert's 64 tokens more often, and
    then be computed in pieces."""
    top: int = 64
    group: int | None = None
    """The layers in one plan. None: as many as the free memory allows, at most 8."""


@dataclass(frozen=True, slots=True)
class Intent:
    """Checked options for a checkpoint on this machine."""

    options: TensorRtOptions
    families: tuple[Family, ...]
    element: Element
    group: int

    @property
    def weight_type(self) -> Format:
        """The weight type for the card: of the first family's experts, or of the bare graph."""
        if self.families:
            return self.families[0].weights
        return "f32" if self.element == "float32" else "f16"

    def graph(self, checkpoint: Checkpoint) -> GraphSpec:
        """The numbers of the graph. Raises a `PrepareError` for impossible ones."""
        a, options = checkpoint.architecture, self.options
        groups = grouped(a.layers, self.group)
        return GraphSpec(
            a, options.slots, options.length, options.chunk, options.top, self.element, groups
        )

    def disk_bytes(self, checkpoint: Checkpoint) -> float:
        a = checkpoint.architecture
        graph = graph_bytes(a, self.element, self.options.length)
        if self.options.kind == "onnx":
            return graph + sum(tensor.size_bytes for tensor in expert_tensors(checkpoint))
        sizes = [*(min(self.group, a.layers - n) for n in range(0, a.layers, self.group)), 0, 0]
        return graph + sum(plan_bytes(a, family, n) for family in self.families for n in sizes)

    def identity(self, source: Source, release: str) -> str:
        """A text of everything that the served model depends on: content, without times and paths.
        The number of layers in a plan depends on the free memory and has no effect: left out."""
        facts = {
            "source": source_facts(source),
            "layout": source.layout,
            "wish": asdict(self.options),
            "families": self.families,
            "element": self.element,
            "release": release,
            "converter": CONVERTER,
        }
        return json.dumps(facts, sort_keys=True)


def intended(
    options: TensorRtOptions, checkpoint: Checkpoint, *, memory_bytes: int, present: str | None
) -> Intent:
    """The options on this machine. Raises a `PrepareError` for the first impossible one."""
    a = checkpoint.architecture
    if options.weights not in (None, *FORMATS):
        raise refusal(
            f"--type {options.weights}",
            f"kind {options.kind}",
            f"one of {', '.join(FORMATS)}",
            WrongInput,
        )
    if options.group is not None and options.group < 1:
        raise refusal("--group", options.group, "1 or more layers", WrongInput)
    if options.kind == "onnx":
        if options.targets:
            raise refusal(
                "--targets",
                ", ".join(options.targets),
                "none: a bare graph has no targets",
                WrongInput,
            )
        return Intent(options, (), _graph_element(options.weights), options.group or GRAPH_GROUP)
    targets = options.targets or default_targets(a.packed, present)
    found = tuple(families(targets, a.packed, options.weights))
    group = group_size(a, found, memory_bytes, options.group)
    return Intent(options, found, found[0].element, group)


def _graph_element(weights: Format | None) -> Element:
    elements: dict[Format | None, Element] = {None: "float32", "f32": "float32", "f16": "float16"}
    if weights not in elements:
        raise refusal(
            f"--type {weights}",
            "a bare graph",
            "f32 or f16, which onnxruntime computes in on a CPU",
            WrongInput,
        )
    return elements[weights]

"""A checkpoint as a graph on disk, and the engine that runs it on onnxruntime: for tests only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trt_responses.engines.tensorrt.engine import TensorRtEngine
from trt_responses.engines.tensorrt.onnx import OnnxExecutor
from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.files import GRAPH
from trt_responses.prepare.graph.weights import dense
from trt_responses.prepare.graph.write import GraphSpec, group_name, grouped, write
from trt_responses.prepare.shelf.card import architecture_of, chain_of

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.checkpoint.safetensors import Array
    from trt_responses.prepare.shelf.card import Card
    from trt_responses.tokens.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Graph:
    """One that was written, and the checkpoint that it takes its experts from."""

    checkpoint: Path
    folder: Path
    plan: GraphSpec

    def executor(self) -> OnnxExecutor:
        return OnnxExecutor(
            self.folder / GRAPH,
            link_names(self.plan),
            self.expert,
            slots=self.plan.slots,
            chunk=self.plan.chunk,
            threads=1,
        )

    def engine(self, vocabulary: Vocabulary) -> TensorRtEngine:
        return TensorRtEngine(
            partial(self.executor),
            vocabulary,
            slots=self.plan.slots,
            context_tokens=self.plan.length,
            top=self.plan.top,
        )

    def expert(self, name: str) -> Array:
        _, layer, projection = name.split(".")
        return dense(open_checkpoint(self.checkpoint), int(layer), projection, self.plan.element)


def planned(checkpoint: Path, folder: Path, *, slots: int, length: int, chunk: int = 64) -> Graph:
    """What `written` writes."""
    a = open_checkpoint(checkpoint).architecture
    return Graph(
        checkpoint, folder, GraphSpec(a, slots, length, chunk, 64, "float32", grouped(a.layers, 2))
    )


def written(graph: Graph) -> Graph:
    write(graph.plan, open_checkpoint(graph.checkpoint), graph.folder)
    return graph


def link_names(spec: GraphSpec) -> tuple[str, ...]:
    return ("embed", *map(group_name, spec.groups), "head")


def spec_of(card: Card) -> GraphSpec:
    """What a prepared engine's graph was written by."""
    chain = chain_of(card)
    return GraphSpec(
        architecture=architecture_of(card),
        slots=chain.slots,
        length=chain.length,
        chunk=chain.chunk,
        top=chain.top,
        element=chain.element,
        groups=tuple(range(k.first, k.first + k.count) for k in chain.links if k.count),
    )

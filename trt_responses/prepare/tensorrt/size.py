"""Estimates the size of a compiled model, the memory and time to compile it, and the layers per
plan. Computes from the architecture's numbers and two measured rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trt_responses.prepare.checkpoint.architecture import Architecture
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.graph.onnx_file import Element
from trt_responses.prepare.phases import rounded
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.shelf.chain import Format
from trt_responses.prepare.tensorrt.targets import Family

BITS: Mapping[Format, float] = {"mxfp4": 4.25, "int8": 8.5, "bf16": 16, "f16": 16, "f32": 32}
"""Bits of an expert's weight, with its share of the block's scale."""
ELEMENT_BYTES: Mapping[Element, int] = {"float32": 4, "float16": 2, "bfloat16": 2}
PLAN_BYTES = 4_000_000
"""Bytes of a plan in addition to weights: kernels, tables, rotations of positions."""
SLACK = 1.1
"""The size of a plan as a multiple of its weights. Measured: a 20b layer with 4-bit experts has 507
MB, its weights 476 MB."""
PEAK_BASE = 0.5 * 2**30
PEAK_FACTOR, PEAK_FACTOR_FOUR_BITS = 3.0, 4.2
"""The memory of a compilation, as a multiple of the plan's bytes. Measured on a 20b: 2.7 GB for a
layer of 0.51 GB with 4-bit experts and 13.8 GB for eight; 3.1 GB for a layer of 0.91 GB with 8-bit
experts; 3.7 GB for an embedding or head of 1.16 GB."""
MEMORY_SHARE = 0.85
"""The share of the free memory to use."""
MOST_LAYERS = 8
"""The most layers in one plan: fewer plans cost fewer launches, larger ones more memory to
compile."""
BYTES_PER_S = 60e6
"""Bytes compiled per second, measured on two cores; used until the first piece is done."""
START_S = 1.0
"""Seconds for a piece of any size: to start a process and import its packages."""


def layer_bytes(a: Architecture, weights: Format, element: Element) -> float:
    """Bytes of one layer."""
    experts = 3 * a.experts * a.hidden * a.intermediate * BITS[weights] / 8
    return experts + graph_layer_bytes(a, element)


def graph_layer_bytes(a: Architecture, element: Element) -> float:
    """Bytes of a layer in the graph itself, without the experts."""
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    matrices = a.hidden * (2 * q + 2 * kv + a.experts)
    biases = q + 2 * kv + 4 * a.hidden + a.experts * (2 * a.intermediate + a.hidden)
    return (matrices + biases) * ELEMENT_BYTES[element]


def end_bytes(a: Architecture, element: Element) -> float:
    """Bytes of the embedding, or of the head."""
    return a.vocabulary * a.hidden * ELEMENT_BYTES[element]


def plan_bytes(a: Architecture, family: Family, layers: int) -> float:
    """Bytes of one plan of so many layers; with 0 layers, of the embedding or the head."""
    if not layers:
        return end_bytes(a, family.element) * SLACK + PLAN_BYTES
    return layers * layer_bytes(a, family.weights, family.element) * SLACK + PLAN_BYTES


def graph_bytes(a: Architecture, element: Element, length: int) -> float:
    """Bytes of the whole graph."""
    turns = length * a.head_dim * ELEMENT_BYTES[element]
    layers = a.layers * (graph_layer_bytes(a, element) + turns)
    return layers + 2 * end_bytes(a, element) + PLAN_BYTES


def peak_bytes(a: Architecture, family: Family, layers: int) -> float:
    """Bytes of memory to compile such a plan."""
    four_bits = layers and family.weights == "mxfp4"
    factor = PEAK_FACTOR_FOUR_BITS if four_bits else PEAK_FACTOR
    return PEAK_BASE + factor * plan_bytes(a, family, layers)


def group_size(
    a: Architecture, families: Sequence[Family], memory_bytes: float, wanted: int | None = None
) -> int:
    """The number of layers per plan with this much free memory, or `wanted` if that fits."""
    usable = memory_bytes * MEMORY_SHARE

    def fits(layers: int) -> bool:
        return all(peak_bytes(a, family, layers) <= usable for family in families)

    for layers in (0, wanted or 1):
        if not fits(layers):
            needed = max(peak_bytes(a, f, layers) for f in families) / MEMORY_SHARE
            what = f"{layers} layers in one plan" if layers else "the embedding"
            raise PrepareError(
                f"Not enough memory to compile {what}: {megabytes(needed)} needed, "
                f"{megabytes(memory_bytes)} free; stop other programs, or use a larger machine."
            )
    size = wanted or 1
    while wanted is None and size < min(MOST_LAYERS, a.layers) and fits(2 * size):
        size *= 2
    return size


def time_left(sizes: Mapping[str, float], name: str, spent_s: float) -> str:
    """The place of a piece, and the time left with its own. `spent_s`: the time of the pieces
    before it, which corrects the estimate."""
    work = {piece: START_S + size / BYTES_PER_S for piece, size in sizes.items()}
    names = list(work)
    at = names.index(name)
    before = sum(work[piece] for piece in names[:at])
    rest = sum(work.values()) - before
    slower = spent_s / before if before else 1.0
    return f"{at + 1} of {len(names)}, about {rounded(rest * slower)} left"

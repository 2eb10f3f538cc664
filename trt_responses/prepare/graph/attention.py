"""The attention of a layer over a cache of fixed length, as nodes of a graph.
Handles positions, YaRN, windows and sinks; opens no file. Row 0 of a cache belongs to the sink: its
key and value are zeros, so its score is the mask alone (the head's learned sink) and its value adds
nothing. An ordinary attention then computes the softmax with a sink exactly. Token t is at row
t + 1, and later rows are never visible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.architecture import Architecture
from trt_responses.prepare.checkpoint.forward import rotations
from trt_responses.prepare.graph.builder import Builder, Value
from trt_responses.prepare.graph.onnx_file import Element
from trt_responses.prepare.graph.weights import Weights

Cache = tuple[Value, Value]

LOWEST: Mapping[Element, float] = {"float32": -1e38, "float16": -6e4, "bfloat16": -1e38}
"""The score that hides a key: its share becomes exactly 0. The sink is always visible, so no sum
of shares is 0."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The positions and masks that all layers of a group share."""

    write: Value
    """[B]: the first row to write."""
    cos: Value
    """[B,1,S,D/2], as `sin`: the rotation of each position."""
    sin: Value
    first: Value
    """[rows]: true at the sink's row alone."""
    whole: Value
    """[B,1,S,rows]: 0 for visible rows, very low for the others."""
    window: Value


def sight(g: Builder, a: Architecture, hidden: Value, lens: Value, length: int) -> Sight:
    """Positions and masks from `lens` alone: the rows of a batch can have different lengths.

    A full slot that idles in a step writes its last row instead of one past its end. No request
    continues from that row: the last token of a prompt is always computed again.
    """
    rows, steps = g.count(length + 1), hidden.size(1)
    position = lens.unsqueezed(1) + g.counted(steps).unsqueezed(0)
    own = (position + 1).unsqueezed(1, 3)
    seen = rows <= own
    near = seen & (rows > own - a.sliding_window)
    cos, sin = rotations(a, length, truncate=a.truncate)
    turn = position.atmost(length - 1)
    return Sight(
        write=(lens + 1).atmost((length + 1) - steps),
        cos=g.weight("rope.cos", cos).rows(turn).unsqueezed(1),
        sin=g.weight("rope.sin", sin).rows(turn).unsqueezed(1),
        first=rows.equals(0),
        whole=_mask(g, seen),
        window=_mask(g, near),
    )


def _mask(g: Builder, visible: Value) -> Value:
    return g.where(visible, g.constant(0.0, g.type), g.constant(LOWEST[g.element], g.type))


def attention(
    w: Weights,
    a: Architecture,
    x: Value,
    sight: Sight,
    past: tuple[Value, Value],
    *,
    windowed: bool,
) -> tuple[Value, Cache]:
    """Grouped-query attention of normed `x`, and the caches with the new tokens in them."""
    g, n = x.graph, a.head_dim
    q = rotated(heads(w.linear(x, "self_attn.q_proj"), a.heads, n), sight)
    k = rotated(heads(w.linear(x, "self_attn.k_proj"), a.kv_heads, n), sight)
    v = heads(w.linear(x, "self_attn.v_proj"), a.kv_heads, n)
    present = updated(past[0], k, sight), updated(past[1], v, sight)
    sinks = w.own("self_attn.sinks", (1, a.heads, 1, 1))
    mask = g.where(sight.first, sinks, sight.window if windowed else sight.whole)
    mixed = g.op("Attention", q, *present, mask, scale=1 / math.sqrt(n))
    joined = mixed.transposed(0, 2, 1, 3).reshaped(0, 0, a.heads * n)
    return w.linear(joined, "self_attn.o_proj"), present


def heads(x: Value, count: int, size: int) -> Value:
    """A tensor [B,S,count·size] as [B,count,S,size]."""
    return x.reshaped(0, 0, count, size).transposed(0, 2, 1, 3)


def rotated(x: Value, sight: Sight) -> Value:
    """The rotated heads: the first half of each turned against the second."""
    first, second = x.graph.several("Split", (x,), (x.type, x.type), axis=-1, num_outputs=2)
    turned = first * sight.cos - second * sight.sin, second * sight.cos + first * sight.sin
    return x.graph.op("Concat", *turned, axis=-1)


def updated(past: Value, new: Value, sight: Sight) -> Value:
    """A cache with the new tokens in it."""
    return past.graph.op("TensorScatter", past, new, sight.write, axis=2, mode="linear")

"""The experts of a layer, as nodes of a graph in which no shape depends on the data.

Each expert computes the first C tokens that chose it, in their order, and the results are gathered;
there is no scatter. C is twice an even share and at least 64 (or all tokens, if fewer), so a step
of up to 64 tokens is always exact. A longer step is exact unless more than C tokens chose one
expert; then `overflow` is above 0.
"""

from __future__ import annotations

from trt_responses.prepare.checkpoint.architecture import SWIGLU_LIMIT, Architecture
from trt_responses.prepare.checkpoint.forward import SWIGLU_ALPHA
from trt_responses.prepare.graph.builder import Builder, Value
from trt_responses.prepare.graph.onnx_file import FLOAT32, INT64
from trt_responses.prepare.graph.weights import Weights

ALWAYS_EXACT = 64
"""The most tokens of a step that can never overflow."""
EVEN_SHARES = 2


def capacity(tokens: Value, a: Architecture) -> Value:
    """The most tokens of a step that one expert computes, from the step's number of tokens."""
    share = (tokens * (EVEN_SHARES * a.experts_per_token) + (a.experts - 1)) // a.experts
    return tokens.atmost(share.atleast(ALWAYS_EXACT))


def experts(
    w: Weights, a: Architecture, x: Value, weights: tuple[Value, Value]
) -> tuple[Value, Value]:
    """The mixture for normed `x` [B,S,H], and the excess of the fullest expert over its capacity.
    T counts the tokens of all rows. A token beyond the capacity reads a wrong row.
    """
    flat = x.reshaped(-1, a.hidden)
    tokens = flat.size(0)
    chosen, shares = router(w, a, flat)
    room = capacity(tokens, a)
    tokens_of, slot, load = dispatched(w.graph, a, chosen, tokens, room)
    y = mlp(w, a, flat.rows(tokens_of), weights).reshaped(-1, a.hidden)
    found = y.rows(chosen * room + slot)
    mixed = shares.cast(x.type).unsqueezed(1) @ found
    return mixed.shaped_as(x), load - room


def router(w: Weights, a: Architecture, x: Value) -> tuple[Value, Value]:
    """[T,k]: the chosen experts, and their shares; in float32, since rounding changes choices.
    Products and sums are separate nodes: Turing GPUs have no matrix product in float32.
    """
    products = x.cast(FLOAT32).unsqueezed(1) * w.own("mlp.router.weight", element="float32")
    scores = products.summed(2) + w.own("mlp.router.bias", element="float32")
    picked, chosen = scores.largest(a.experts_per_token)
    return chosen, w.graph.op("Softmax", picked, axis=-1)


def dispatched(
    g: Builder, a: Architecture, chosen: Value, tokens: Value, room: Value
) -> tuple[Value, Value, Value]:
    """The tokens of each expert, [E,C]; the places of a token's results, [T,k]; and the largest
    load, [1]."""
    wants = chosen.unsqueezed(2).equals(g.count(a.experts)).cast(FLOAT32).summed(1)
    before = g.op("CumSum", wants, g.constant(0, INT64), exclusive=1)
    turn = (tokens - g.counted(tokens)).cast(FLOAT32)
    _, tokens_of = (wants.transposed(1, 0) * turn).largest(room)
    slot = g.op("GatherElements", before, chosen, axis=1).cast(INT64).atmost(room - 1)
    load, _ = wants.summed(0).largest(1)
    return tokens_of, slot, load.cast(INT64)


def mlp(w: Weights, a: Architecture, x: Value, weights: tuple[Value, Value]) -> Value:
    """The experts' outputs, [E,C,H] to [E,C,H], each for its own tokens. The gate's rows are first,
    then those of the linear half."""
    gate_up, down = weights
    both = x @ gate_up.transposed(0, 2, 1) + w.expert_bias("gate_up_proj", gate_comes_first=True)
    gate = both.part(0, a.intermediate).atmost(SWIGLU_LIMIT)
    linear = both.part(a.intermediate, 2 * a.intermediate)
    linear = linear.atmost(SWIGLU_LIMIT).atleast(-SWIGLU_LIMIT)
    gated = gate * w.graph.op("Sigmoid", gate * SWIGLU_ALPHA) * (linear + 1.0)
    return gated @ down.transposed(0, 2, 1) + w.expert_bias("down_proj")

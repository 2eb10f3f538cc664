"""The tensors that a gpt-oss checkpoint must have, by Hugging Face name, with shape and dtypes.
Computes them from the config's numbers: opens no file.
"""

from __future__ import annotations

from typing import NamedTuple

from trt_responses.prepare.checkpoint.architecture import Architecture
from trt_responses.prepare.faults import refusal

MXFP4_BLOCK = 32
PACKED_ENDS = ("_blocks", "_scales")


class Expected(NamedTuple):
    """The shape and the dtypes that a tensor must have."""

    shape: tuple[int, ...]
    dtypes: tuple[str, ...]


def expected_tensors(a: Architecture) -> dict[str, Expected]:
    """Every tensor of the Hugging Face layout, by name."""
    if a.packed:
        for name, row in (("hidden_size", a.hidden), ("intermediate_size", a.intermediate)):
            if row % MXFP4_BLOCK:
                raise refusal(f"config.json, {name}", row, f"a multiple of {MXFP4_BLOCK} for MXFP4")
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (a.vocabulary, a.hidden)}
    for n in range(a.layers):
        shapes |= {f"model.layers.{n}.{k}": shape for k, shape in _layer(a).items()}
    shapes |= {"model.norm.weight": (a.hidden,), "lm_head.weight": (a.vocabulary, a.hidden)}
    return {
        name: Expected(shape, ("U8",) if name.endswith(PACKED_ENDS) else ("BF16", "F32"))
        for name, shape in shapes.items()
    }


def _layer(a: Architecture) -> dict[str, tuple[int, ...]]:
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    shapes: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (a.hidden,)}
    for name, rows, columns in (
        ("q", q, a.hidden),
        ("k", kv, a.hidden),
        ("v", kv, a.hidden),
        ("o", a.hidden, q),
    ):
        shapes[f"self_attn.{name}_proj.weight"] = (rows, columns)
        shapes[f"self_attn.{name}_proj.bias"] = (rows,)
    shapes["self_attn.sinks"] = (a.heads,)
    shapes["post_attention_layernorm.weight"] = (a.hidden,)
    shapes["mlp.router.weight"] = (a.experts, a.hidden)
    shapes["mlp.router.bias"] = (a.experts,)
    for name, inputs, outputs in (
        ("gate_up", a.hidden, 2 * a.intermediate),
        ("down", a.intermediate, a.hidden),
    ):
        shapes |= _expert(f"mlp.experts.{name}_proj", a, inputs, outputs)
    return shapes


def _expert(name: str, a: Architecture, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    weights: dict[str, tuple[int, ...]] = {name: (a.experts, inputs, outputs)}
    if a.packed:
        blocks = (a.experts, outputs, inputs // MXFP4_BLOCK)
        weights = {f"{name}_blocks": (*blocks, MXFP4_BLOCK // 2), f"{name}_scales": blocks}
    return weights | {f"{name}_bias": (a.experts, outputs)}

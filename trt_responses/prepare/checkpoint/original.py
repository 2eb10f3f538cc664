"""OpenAI's original layout as the Hugging Face one: renames tensors, and splits q, k and v.
Both layouts interleave gate and up, and pack MXFP4 in the same way. Reads no tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trt_responses.prepare.checkpoint.architecture import Architecture
from trt_responses.prepare.checkpoint.safetensors import Tensor
from trt_responses.prepare.faults import refusal

TOP_NAMES = {
    "embedding.weight": "model.embed_tokens.weight",
    "unembedding.weight": "lm_head.weight",
    "norm.scale": "model.norm.weight",
}
BLOCK_NAMES = {
    "attn.norm.scale": "input_layernorm.weight",
    "attn.out.weight": "self_attn.o_proj.weight",
    "attn.out.bias": "self_attn.o_proj.bias",
    "attn.sinks": "self_attn.sinks",
    "mlp.norm.scale": "post_attention_layernorm.weight",
    "mlp.gate.weight": "mlp.router.weight",
    "mlp.gate.bias": "mlp.router.bias",
    "mlp.mlp1_weight.blocks": "mlp.experts.gate_up_proj_blocks",
    "mlp.mlp1_weight.scales": "mlp.experts.gate_up_proj_scales",
    "mlp.mlp1_bias": "mlp.experts.gate_up_proj_bias",
    "mlp.mlp2_weight.blocks": "mlp.experts.down_proj_blocks",
    "mlp.mlp2_weight.scales": "mlp.experts.down_proj_scales",
    "mlp.mlp2_bias": "mlp.experts.down_proj_bias",
}
TRANSPOSED = {
    "mlp.mlp1_weight": "mlp.experts.gate_up_proj",
    "mlp.mlp2_weight": "mlp.experts.down_proj",
}
"""Tensors that are [expert, out, in] here and [expert, in, out] in the other layout."""
FUSED = ("attn.qkv.weight", "attn.qkv.bias")


def as_hf(tensors: Mapping[str, Tensor], architecture: Architecture) -> dict[str, Tensor]:
    """The same tensors under their Hugging Face names. Reads none of them."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        for renamed in _renamed(name, tensor, architecture):
            found[renamed.name] = renamed
    return found


def _renamed(name: str, tensor: Tensor, architecture: Architecture) -> list[Tensor]:
    if name in TOP_NAMES:
        return [replace(tensor, name=TOP_NAMES[name])]
    word, _, rest = name.partition(".")
    number, _, rest = rest.partition(".")
    prefix = f"model.layers.{number}."
    if word == "block" and number.isascii() and number.isdigit():
        if rest in BLOCK_NAMES:
            return [replace(tensor, name=prefix + BLOCK_NAMES[rest])]
        if rest in TRANSPOSED:
            return [_transposed(tensor, prefix + TRANSPOSED[rest])]
        if rest in FUSED:
            return _split(tensor, prefix, rest.rpartition(".")[2], architecture)
    raise refusal(f"tensor {name!r}", "an unknown name", "a tensor of the original gpt-oss layout")


def _transposed(tensor: Tensor, name: str) -> Tensor:
    if len(tensor.shape) != 3:
        raise refusal(f"tensor {tensor.name!r}", f"shape {tensor.shape}", "three dimensions")
    experts, outputs, inputs = tensor.shape
    return Tensor(
        name, tensor.dtype, (experts, inputs, outputs), lambda: tensor.read().transpose(0, 2, 1)
    )


def _split(tensor: Tensor, prefix: str, kind: str, a: Architecture) -> list[Tensor]:
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    rows = tensor.shape[0] if tensor.shape else 0
    if rows != q + 2 * kv:
        expected = f"{q + 2 * kv} ({q} for q, {kv} each for k and v)"
        raise refusal(f"tensor {tensor.name!r}, rows", rows, expected)
    ranges = {"q": (0, q), "k": (q, q + kv), "v": (q + kv, rows)}
    return [
        _rows(tensor, f"{prefix}self_attn.{letter}_proj.{kind}", start, stop)
        for letter, (start, stop) in ranges.items()
    ]


def _rows(tensor: Tensor, name: str, start: int, stop: int) -> Tensor:
    shape = (stop - start, *tensor.shape[1:])
    return Tensor(name, tensor.dtype, shape, lambda: tensor.read()[start:stop])

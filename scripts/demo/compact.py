"""The trained model as the compact source: ordinary tensor names, used vocabulary rows only.

Knows torch's tensors and the names of a Hugging Face gpt-oss; `trt_responses.prepare.demo` grows
the file to an ordinary checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from scripts.demo.model import Model, Shape
from scripts.demo.rows import Codec
from trt_responses.prepare.checkpoint.safetensors import (
    Tensor,
    narrow,
    read_tensors,
    widen,
    write_tensors,
)
from trt_responses.prepare.demo import COMPACT, USED_IDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripts.demo.model import Attention, Experts, Layer
    from trt_responses.prepare.checkpoint.safetensors import Array


@dataclass(frozen=True, slots=True)
class _Held:
    values: Array

    def __call__(self) -> Array:
        return self.values


def write(model: Model, known: Codec, source: Path) -> None:
    source.mkdir(parents=True, exist_ok=True)
    config = json.dumps(model.shape.config(), indent=2) + "\n"
    (source / "config.json").write_text(config, "utf-8")
    used = np.array(known.used, np.int32)
    tensors = [Tensor(name, "BF16", tuple(t.shape), _Held(_bits(t))) for name, t in _named(model)]
    tensors.append(Tensor(USED_IDS, "I32", used.shape, _Held(used)))
    write_tensors(source / COMPACT, tensors)


def read(source: Path) -> tuple[Model, Codec]:
    """A model with the weights of a compact source, and the ids that its rows belong to."""
    tensors = read_tensors(source / COMPACT)
    known = Codec.of(tensors[USED_IDS].read().tolist())
    model = Model(Shape(), len(known.used) + 1)
    with torch.no_grad():
        for name, target in _named(model):
            target.copy_(torch.from_numpy(widen(tensors[name].read()).copy()))
        for number, layer in enumerate(model.layers):
            both = f"model.layers.{number}.mlp.experts.gate_up_proj"
            for start, linear in enumerate((layer.mlp.gate_proj, layer.mlp.up_proj)):
                weight, bias = (widen(tensors[n].read()) for n in (both, f"{both}_bias"))
                own = weight[..., start::2].swapaxes(1, 2).reshape(linear.weight.shape)
                linear.weight.copy_(torch.from_numpy(own.copy()))
                linear.bias.copy_(torch.from_numpy(bias[:, start::2].reshape(-1).copy()))
    return model, known


def _bits(tensor: torch.Tensor) -> Array:
    return narrow(tensor.detach().float().cpu().contiguous().numpy())


def _named(model: Model) -> Iterator[tuple[str, torch.Tensor]]:
    yield "model.embed_tokens.weight", model.embed_tokens.weight
    yield "lm_head.weight", model.lm_head.weight
    yield "model.norm.weight", model.norm.weight
    for number, layer in enumerate(model.layers):
        for name, tensor in _of_layer(layer):
            yield f"model.layers.{number}.{name}", tensor


def _of_layer(layer: Layer) -> Iterator[tuple[str, torch.Tensor]]:
    yield "input_layernorm.weight", layer.input_layernorm.weight
    yield "post_attention_layernorm.weight", layer.post_attention_layernorm.weight
    for name, tensor in _of_attention(layer.self_attn):
        yield f"self_attn.{name}", tensor
    for name, tensor in _of_experts(layer.mlp):
        yield f"mlp.{name}", tensor


def _of_attention(attention: Attention) -> Iterator[tuple[str, torch.Tensor]]:
    weights = attention.qkv_proj.weight.split(attention.widths)
    biases = attention.qkv_proj.bias.split(attention.widths)
    for letter, weight, bias in zip("qkv", weights, biases, strict=True):
        yield f"{letter}_proj.weight", weight
        yield f"{letter}_proj.bias", bias
    yield "o_proj.weight", attention.o_proj.weight
    yield "o_proj.bias", attention.o_proj.bias
    yield "sinks", attention.sinks


def _of_experts(mlp: Experts) -> Iterator[tuple[str, torch.Tensor]]:
    """Hugging Face interleaves gate and up, and multiplies from the left: [expert, in, out]."""
    count, inner = mlp.shape.experts, mlp.shape.intermediate
    gate, up = (
        linear.weight.view(count, inner, -1).transpose(1, 2)
        for linear in (mlp.gate_proj, mlp.up_proj)
    )
    both = gate.new_empty(count, gate.shape[1], 2 * inner)
    both[..., ::2], both[..., 1::2] = gate.detach(), up.detach()
    bias = gate.new_empty(count, 2 * inner)
    bias[:, ::2] = mlp.gate_proj.bias.detach().view(count, inner)
    bias[:, 1::2] = mlp.up_proj.bias.detach().view(count, inner)
    yield "router.weight", mlp.router.weight
    yield "router.bias", mlp.router.bias
    yield "experts.gate_up_proj", both
    yield "experts.gate_up_proj_bias", bias
    yield "experts.down_proj", mlp.down_proj.view(count, inner, -1)
    yield "experts.down_proj_bias", mlp.down_proj_bias

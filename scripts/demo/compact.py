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

from scripts.demo import circuit
from scripts.demo import words as listed
from scripts.demo.model import ExtraRows, Model, Shape
from scripts.demo.rows import Codec
from trt_responses.prepare.checkpoint.safetensors import (
    Tensor,
    narrow,
    read_tensors,
    widen,
    write_tensors,
)
from trt_responses.prepare.demo import COMPACT, USED_IDS
from trt_responses.prepare.demo_rows import MADE, pictures, properties

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripts.demo.model import Attention, Experts, Layer
    from trt_responses.prepare.checkpoint.safetensors import Array


APART = 0.15
"""How far the last matrix tells tokens apart that have no row of their own, before training."""
CARRIED = 1.0
"""How strongly the heads of a new layer copy at first."""


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


def read(source: Path, wanted: Codec | None = None) -> tuple[Model, Codec]:
    """A model with the weights of a compact source, and the ids that its rows belong to. Or the
    ids that are `wanted`: those that had no row get one that is made."""
    tensors = read_tensors(source / COMPACT)
    known = Codec.of(tensors[USED_IDS].read().tolist())
    layers = len({name.split(".")[2] for name in tensors if name.startswith("model.layers.")})
    model = Model(Shape(layers=layers), len(known.used) + 1)
    with torch.no_grad():
        for name, target in _named(model):
            if name in tensors:
                target.copy_(torch.from_numpy(widen(tensors[name].read()).copy()))
        if MADE[0] not in tensors:
            _learn_to_make(model, known)
        for number, layer in enumerate(model.layers):
            both = f"model.layers.{number}.mlp.experts.gate_up_proj"
            for start, linear in enumerate((layer.mlp.gate_proj, layer.mlp.up_proj)):
                weight, bias = (widen(tensors[n].read()) for n in (both, f"{both}_bias"))
                own = weight[..., start::2].swapaxes(1, 2).reshape(linear.weight.shape)
                linear.weight.copy_(torch.from_numpy(own.copy()))
                linear.bias.copy_(torch.from_numpy(bias[:, start::2].reshape(-1).copy()))
        if wanted is not None:
            return _grown(model, known, wanted)
    return model, known


def _learn_to_make(model: Model, known: Codec) -> None:
    """The matrices that make rows most like those of the words that a model has rows for."""
    tokens = [listed.spelled(token) for token in known.used]
    words = [at for at, token in enumerate(tokens) if token.strip().isalpha()]
    embed, head = model.embed_tokens.weight[words], model.lm_head.weight[words]
    seen = torch.from_numpy(properties([tokens[at] for at in words]))
    drawn = torch.from_numpy(pictures([tokens[at] for at in words]))
    common = torch.linalg.lstsq(seen, embed, driver="gelsd").solution
    apart = embed - seen @ common
    size = apart.pow(2).mean().sqrt() / drawn.pow(2).mean().sqrt()
    model.made_embed.matrix.copy_(size * torch.eye(model.shape.hidden))
    model.made_embed.properties.copy_(common)
    both = torch.cat((apart, seen), 1)
    kept = 0.1 * len(words) ** 0.5 * torch.eye(both.shape[1])
    solved = torch.linalg.lstsq(
        torch.cat((both, kept)), torch.cat((head, head.new_zeros(both.shape[1], head.shape[1])))
    ).solution
    onward, heads = solved[: model.shape.hidden], solved[model.shape.hidden :]
    turned = circuit.orthogonal(model.shape.hidden, torch.Generator().manual_seed(7))
    model.made_head.matrix.copy_(size * onward.T + APART * turned)
    model.made_head.properties.copy_(heads)


def _carried(model: Model) -> torch.Tensor:
    """What turns a token's row of the first vocabulary matrix to one that the last reads best."""
    made = model.made_embed.matrix, model.made_head.matrix
    return made[1] @ torch.linalg.inv(made[0])


def _copies(layer: Layer, carried: torch.Tensor) -> None:
    """Heads of a full layer that name what they look at, though they have yet to learn where to
    look: two of them, which look alike, carry the halves of a token."""
    attention = layer.self_attn
    if attention.sliding:
        return
    shape = attention.shape
    group, size = shape.heads // shape.kv_heads, shape.head_dim
    (_, key, _), _ = attention.parts(0)
    scale = CARRIED * shape.hidden**0.5 / carried.norm()
    for head in range(shape.heads):
        kv, like = divmod(head, group)
        (wq, wk, wv), _ = attention.parts(head)
        wq.copy_(attention.parts(like)[0][0])
        wk.copy_(key)
        half = slice(kv * size, (kv + 1) * size)
        wv.copy_(torch.eye(shape.hidden)[half])
        place = slice(head * size, (head + 1) * size)
        attention.o_proj.weight[:, place] = scale * carried[:, half]


def _grown(model: Model, known: Codec, wider: Codec) -> tuple[Model, Codec]:
    """The model with rows for these ids, new ones made as those of a batch are, and with all
    layers, of which those that it had not add nothing yet."""
    grown = Model(Shape(), len(wider.used) + 1)
    for layer in grown.layers[model.shape.layers :]:
        for weight in (layer.self_attn.o_proj.weight, layer.self_attn.o_proj.bias):
            weight.zero_()
        layer.mlp.down_proj.zero_()
    carried = _carried(model)
    for layer in grown.layers[model.shape.layers :]:
        _copies(layer, carried)
    held = {n: t for n, t in model.state_dict().items() if t.shape == grown.state_dict()[n].shape}
    grown.load_state_dict(held, strict=False)
    tokens = [listed.spelled(token) for token in wider.used]
    extra = ExtraRows(
        torch.from_numpy(pictures(tokens)),
        torch.from_numpy(properties(tokens)),
        torch.zeros(len(tokens)),
    )
    pairs = (
        (grown.embed_tokens.weight, model.embed_tokens.weight, model.made_embed),
        (grown.lm_head.weight, model.lm_head.weight, model.made_head),
    )
    both = [token for token in known.used if token in wider.row_of]
    places, before = ([codec.row_of[token] for token in both] for codec in (wider, known))
    for target, earlier, made in pairs:
        target[:-1] = made(extra)
        target[places] = earlier[before]
        target[-1] = earlier[-1]
    return grown, wider


def _bits(tensor: torch.Tensor) -> Array:
    return narrow(tensor.detach().float().cpu().contiguous().numpy())


def _named(model: Model) -> Iterator[tuple[str, torch.Tensor]]:
    yield "model.embed_tokens.weight", model.embed_tokens.weight
    yield "lm_head.weight", model.lm_head.weight
    yield "model.norm.weight", model.norm.weight
    made = model.made_embed, model.made_head
    yield from zip(MADE, (*(m.matrix for m in made), *(m.properties for m in made)), strict=True)
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

"""Random gpt-oss checkpoints in every form that can be prepared, for tests and measurements.

Knows names, shapes and layouts; the model has the architecture, and nothing to say.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from trt_responses.frozen import dataclass
from trt_responses.prepare.checkpoint.architecture import Architecture
from trt_responses.prepare.checkpoint.expected import expected_tensors
from trt_responses.prepare.checkpoint.mxfp4 import SCALE_BIAS, VALUES
from trt_responses.prepare.checkpoint.open import INDEX
from trt_responses.prepare.checkpoint.original import BLOCK_NAMES, TOP_NAMES, TRANSPOSED
from trt_responses.prepare.checkpoint.safetensors import Tensor, narrow, write_tensors
from trt_responses.tokens.control import VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from trt_responses.prepare.checkpoint.open import Layout
    from trt_responses.prepare.checkpoint.safetensors import Array

Form = Literal["bf16", "f32", "mxfp4"]

TINY = Architecture(
    layers=4,
    hidden=64,
    intermediate=64,
    heads=4,
    kv_heads=2,
    head_dim=64,
    experts=4,
    experts_per_token=2,
    sliding_window=128,
    context=131_072,
    rope_theta=150_000.0,
    rope_factor=32.0,
    rope_original_context=4096,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=False,
    rms_eps=1e-5,
    vocabulary=VOCABULARY_SIZE,
    packed=False,
)
GPT_OSS_20B = replace(
    TINY,
    layers=24,
    hidden=2880,
    intermediate=2880,
    heads=64,
    kv_heads=8,
    experts=32,
    experts_per_token=4,
)


ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to write; a sparse checkpoint has every header and size right, and only zeros."""

    architecture: Architecture = TINY
    form: Form = "bf16"
    layout: Layout = "hf"
    shards: int = 1
    seed: int = 0
    sparse: bool = False


def write_checkpoint(directory: Path, recipe: Recipe) -> Path:
    """A checkpoint directory; one recipe always gives the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = list(_tensors(recipe))
    config = hf_config(recipe.architecture, packed=recipe.form == "mxfp4")
    if recipe.layout == "original":
        tensors = list(_as_original(tensors, recipe.architecture))
        config = original_config(recipe.architecture)
        write_json(directory / "dtypes.json", {t.name: t.dtype for t in tensors})
    write_json(directory / "config.json", config)
    write_shards(directory, tensors, recipe.shards, sparse=recipe.sparse)
    return directory


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def write_shards(
    directory: Path, tensors: list[Tensor], shards: int, *, sparse: bool = False
) -> None:
    """One `model.safetensors`, or several files with an index."""
    if shards == 1:
        write_tensors(directory / "model.safetensors", tensors, sparse=sparse)
        return
    weight_map: dict[str, str] = {}
    for n in range(shards):
        name = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        part = tensors[n * len(tensors) // shards : (n + 1) * len(tensors) // shards]
        weight_map |= {tensor.name: name for tensor in part}
        write_tensors(directory / name, part, sparse=sparse)
    total = sum(tensor.size_bytes for tensor in tensors)
    write_json(directory / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})


def hf_config(a: Architecture, *, packed: bool = False) -> dict[str, object]:
    config: dict[str, object] = {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_hidden_layers": a.layers,
        "hidden_size": a.hidden,
        "intermediate_size": a.intermediate,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "num_local_experts": a.experts,
        "num_experts_per_tok": a.experts_per_token,
        "sliding_window": a.sliding_window,
        "layer_types": [("sliding_attention", "full_attention")[n % 2] for n in range(a.layers)],
        "max_position_embeddings": a.context,
        "vocab_size": a.vocabulary,
        "rms_norm_eps": a.rms_eps,
        "rope_theta": a.rope_theta,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": a.rope_factor,
            "original_max_position_embeddings": a.rope_original_context,
            "beta_fast": a.beta_fast,
            "beta_slow": a.beta_slow,
            "truncate": a.truncate,
        },
        "attention_bias": True,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "swiglu_limit": 7.0,
        "hidden_act": "silu",
        "eos_token_id": 200_002,
        "pad_token_id": 199_999,
        "torch_dtype": "bfloat16",
    }
    if packed:
        config["quantization_config"] = {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
        }
    return config


def original_config(a: Architecture) -> dict[str, object]:
    return {
        "num_hidden_layers": a.layers,
        "num_experts": a.experts,
        "experts_per_token": a.experts_per_token,
        "vocab_size": a.vocabulary,
        "hidden_size": a.hidden,
        "intermediate_size": a.intermediate,
        "swiglu_limit": 7.0,
        "head_dim": a.head_dim,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "sliding_window": a.sliding_window,
        "initial_context_length": a.rope_original_context,
        "rope_theta": a.rope_theta,
        "rope_scaling_factor": a.rope_factor,
        "rope_ntk_alpha": a.beta_slow,
        "rope_ntk_beta": a.beta_fast,
    }


def _tensors(recipe: Recipe) -> Iterator[Tensor]:
    """Every tensor of the recipe. Its number seeds it, so any one can be made alone."""
    for n, (name, (shape, _)) in enumerate(expected_tensors(recipe.architecture).items()):
        if recipe.form == "mxfp4" and len(shape) == 3:
            yield from _packed(recipe, n, name, shape)
        else:
            dtype = "F32" if recipe.form == "f32" else "BF16"
            yield Tensor(
                name,
                dtype,
                shape,
                lambda n=n, name=name, shape=shape: _stored(  # type: ignore[misc]
                    recipe, n, name, shape
                ),
            )


def _stored(recipe: Recipe, n: int, name: str, shape: tuple[int, ...]) -> Array:
    """A few rows at a time: a whole vocabulary's would take 200 MB while they are made."""
    noise, is_float = np.random.default_rng((recipe.seed, n)), recipe.form == "f32"
    stored: Array = np.empty(shape, np.float32 if is_float else np.uint16)
    for at in range(0, len(stored), ROWS):
        part = stored[at : at + ROWS]
        values = _random(noise, name, part.shape)
        part[:] = values if is_float else narrow(values)
    return stored


def _random(
    noise: np.random.Generator, name: str, shape: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Normal values scaled so that activations neither vanish nor grow with depth."""
    values = noise.standard_normal(shape, np.float32)
    if name.endswith("norm.weight"):
        return 1 + np.float32(0.1) * values
    if name.endswith("embed_tokens.weight") or len(shape) == 1:
        return values * np.float32(0.5)
    inputs = shape[-2] if len(shape) == 3 else shape[-1]
    gain = 4 if name.endswith("gate_up_proj") else 1  # so that the swiglu's clamp is reached
    return values * np.float32(gain * inputs**-0.5)


def _packed(recipe: Recipe, n: int, name: str, shape: tuple[int, ...]) -> Iterator[Tensor]:
    experts, inputs, outputs = shape
    sizes = (experts, outputs, inputs // 32)

    def read(part: int) -> Array:
        noise = np.random.default_rng((recipe.seed, n))
        values = _random(noise, name, shape).transpose(0, 2, 1)
        return quantised(np.ascontiguousarray(values))[part]

    yield Tensor(f"{name}_blocks", "U8", (*sizes, 16), lambda: read(0))
    yield Tensor(f"{name}_scales", "U8", sizes, lambda: read(1))


def _as_original(tensors: list[Tensor], a: Architecture) -> Iterator[Tensor]:
    """The same tensors in OpenAI's layout: `original` read backwards."""
    by_name = {tensor.name: tensor for tensor in tensors}
    for theirs, ours in TOP_NAMES.items():
        yield _renamed(by_name[ours], theirs)
    for n in range(a.layers):
        for kind in ("weight", "bias"):
            yield _fused(
                f"block.{n}.attn.qkv.{kind}",
                [by_name[f"model.layers.{n}.self_attn.{letter}_proj.{kind}"] for letter in "qkv"],
            )
        for theirs, ours in BLOCK_NAMES.items():
            if tensor := by_name.get(f"model.layers.{n}.{ours}"):
                yield _renamed(tensor, f"block.{n}.{theirs}")
        for theirs, ours in TRANSPOSED.items():
            if tensor := by_name.get(f"model.layers.{n}.{ours}"):
                yield _turned(tensor, f"block.{n}.{theirs}")


def _renamed(tensor: Tensor, name: str) -> Tensor:
    return Tensor(name, tensor.dtype, tensor.shape, tensor.read)


def _turned(tensor: Tensor, name: str) -> Tensor:
    experts, inputs, outputs = tensor.shape
    shape = (experts, outputs, inputs)
    return Tensor(name, tensor.dtype, shape, lambda: tensor.read().transpose(0, 2, 1))


def _fused(name: str, parts: list[Tensor]) -> Tensor:
    shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
    return Tensor(
        name, parts[0].dtype, shape, lambda: np.concatenate([part.read() for part in parts])
    )


def quantised(values: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Blocks and scales of [..., n * 32] floats, each value to the nearest code."""
    groups = values.reshape(*values.shape[:-1], -1, 32)
    largest = np.abs(groups).max(axis=-1)
    exponents = np.floor(np.log2(np.maximum(largest, 1e-30))).astype(np.int32) - 2
    scaled = np.ldexp(groups, -exponents[..., None])
    middles = (VALUES[:7] + VALUES[1:8]) / 2
    found = np.searchsorted(middles, np.abs(scaled)).astype(np.uint8)
    found |= (scaled < 0).astype(np.uint8) << 3
    blocks = found[..., 0::2] | (found[..., 1::2] << 4)
    return blocks, (exponents + SCALE_BIAS).clip(0, 254).astype(np.uint8)

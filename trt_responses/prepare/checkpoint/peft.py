"""A LoRA adapter as PEFT saves it: a directory with a config and one safetensors file.
Refuses every option that applies an adapter in another way. Executes nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trt_responses.prepare.checkpoint.open import (
    MAX_CONFIG_BYTES,
    inside,
    json_object,
    refuse_pickles,
)
from trt_responses.prepare.checkpoint.safetensors import Floats, Tensor, read_tensors, widen
from trt_responses.prepare.faults import refusal, shown

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TENSOR = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
MODULES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""PEFT's names of a layer's matrices, and llama.cpp's."""
HEAD = "lm_head"
PLAIN: Mapping[str, tuple[object, ...]] = {
    "bias": (None, "none"),
    "use_dora": (None, False),
    "fan_in_fan_out": (None, False),
    "lora_bias": (None, False),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "layer_replication": (None, []),
    "trainable_token_indices": (None, []),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (None, False),
}
"""Config fields that change how an adapter is applied, and the values that change nothing."""


class Pair(NamedTuple):
    """The two matrices of one LoRA: `down` is (rank, inputs), `up` is (outputs, rank)."""

    down: Tensor
    up: Tensor


class Peft(NamedTuple):
    """An adapter's numbers, and its pairs by llama.cpp's names of the matrices that they change."""

    rank: int
    alpha: float
    """The factor of the product is `alpha / rank`."""
    pairs: Mapping[str, Pair]

    @property
    def modules(self) -> tuple[str, ...]:
        return module_names(self.pairs)


def module_names(tensors: Mapping[str, object]) -> tuple[str, ...]:
    """The names of matrices, without their layers: `attn_q` for `blk.0.attn_q.weight`."""
    return tuple(sorted({name.removesuffix(".weight").split(".")[-1] for name in tensors}))


def open_peft(directory: Path) -> Peft:
    """The adapter in a directory. Checks its shapes against each other, not against a model."""
    refuse_pickles(directory)
    config = json_object(directory, CONFIG, MAX_CONFIG_BYTES)
    rank, alpha = _numbers(config)
    halves: dict[str, dict[str, Tensor]] = {}
    for name, tensor in read_tensors(inside(directory, WEIGHTS)).items():
        if not (found := TENSOR.fullmatch(name)) or not (place := _place(found[1])):
            expected = f"lora_A and lora_B of {', '.join(MODULES)} or {HEAD}"
            raise refusal(f"{WEIGHTS}, tensor", shown(name), expected)
        halves.setdefault(place, {})[found[2]] = tensor
    if not halves:
        raise refusal(WEIGHTS, "no tensors", "an adapter's")
    return Peft(rank, alpha, {name: _pair(name, each, rank) for name, each in halves.items()})


def _numbers(config: Mapping[str, object]) -> tuple[int, float]:
    """The rank, and the alpha that gives the same factor as the config."""
    if config.get("peft_type") != "LORA":
        raise refusal(f"{CONFIG}, peft_type", shown(config.get("peft_type")), "'LORA'")
    for field, plain in PLAIN.items():
        if config.get(field) not in plain:
            raise refusal(f"{CONFIG}, {field}", shown(config[field]), shown(plain[1]))
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or not 0 < rank < 1 << 16:
        raise refusal(f"{CONFIG}, r", shown(rank), "a whole number above 0")
    if type(alpha) not in (int, float) or not math.isfinite(alpha):  # type: ignore[arg-type]
        raise refusal(f"{CONFIG}, lora_alpha", shown(alpha), "a number")
    factor = math.sqrt(rank) if config.get("use_rslora") else 1.0
    return rank, float(alpha) * factor  # type: ignore[arg-type]


def _place(module: str) -> str | None:
    """llama.cpp's name of a module's matrix; None for a module that can have no LoRA."""
    if module == HEAD:
        return "output.weight"
    found = LAYER.fullmatch(module)
    if found is None or found[2] not in MODULES:
        return None
    return f"blk.{int(found[1][:9])}.{MODULES[found[2]]}.weight"


def _pair(name: str, halves: Mapping[str, Tensor], rank: int) -> Pair:
    if set(halves) != {"A", "B"}:
        raise refusal(f"{WEIGHTS}, {name}", f"lora_{min(halves)} alone", "lora_A and lora_B")
    pair = Pair(halves["A"], halves["B"])
    for tensor, at in ((pair.down, 0), (pair.up, 1)):
        if len(tensor.shape) != 2 or tensor.shape[at] != rank:
            raise refusal(
                f"{WEIGHTS}, {tensor.name}", tensor.shape, f"two dimensions of rank {rank}"
            )
        floats(tensor)
    return pair


def floats(tensor: Tensor) -> Floats:
    """A matrix of an adapter as float32, every number of it finite."""
    if tensor.dtype not in ("F32", "BF16", "F16"):
        raise refusal(f"{WEIGHTS}, {tensor.name}", tensor.dtype, "F32, BF16 or F16")
    values = widen(tensor.read())
    if not np.isfinite(values).all():
        raise refusal(f"{WEIGHTS}, {tensor.name}", "a number that is not finite", "finite ones")
    return values

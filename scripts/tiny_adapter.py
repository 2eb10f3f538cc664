"""Write a random LoRA adapter of a gpt-oss checkpoint, in PEFT's form:
`python -m scripts.tiny_adapter CHECKPOINT DIRECTORY`.

It teaches nothing. It shows whether an adapter is applied, for it changes every answer.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trt_responses.prepare.checkpoint.architecture import from_hf
from trt_responses.prepare.checkpoint.expected import expected_tensors
from trt_responses.prepare.checkpoint.open import MAX_CONFIG_BYTES, json_object
from trt_responses.prepare.checkpoint.peft import CONFIG, WEIGHTS
from trt_responses.prepare.checkpoint.safetensors import Tensor, write_tensors

if TYPE_CHECKING:
    from trt_responses.prepare.checkpoint.architecture import Architecture
    from trt_responses.prepare.checkpoint.safetensors import Array

MODULES = ("q_proj", "v_proj", "o_proj")


def write_adapter(
    directory: Path, a: Architecture, *, rank: int = 4, size: float = 0.3, seed: int = 0
) -> Path:
    """Write the two files of an adapter of this architecture; `size` is that of its numbers."""
    random = np.random.default_rng(seed)
    expected, tensors = expected_tensors(a), []

    def add(name: str, *shape: int) -> None:
        values: Array = (random.standard_normal(shape) * size).astype(np.float32)
        tensors.append(Tensor(name, "F32", shape, partial(np.asarray, values)))

    for layer in range(a.layers):
        for module in MODULES:
            place = f"model.layers.{layer}.self_attn.{module}"
            outputs, inputs = expected[f"{place}.weight"].shape
            add(f"base_model.model.{place}.lora_A.weight", rank, inputs)
            add(f"base_model.model.{place}.lora_B.weight", outputs, rank)
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / WEIGHTS, tensors)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": rank,
        "bias": "none",
        "target_modules": MODULES,
    }
    (directory / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    return directory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="a directory with a config.json of gpt-oss")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--size", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    a = from_hf(json_object(options.checkpoint, "config.json", MAX_CONFIG_BYTES))
    print(
        write_adapter(options.directory, a, rank=options.rank, size=options.size, seed=options.seed)
    )


if __name__ == "__main__":
    main()

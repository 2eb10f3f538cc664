"""An adapter for TensorRT-LLM: PEFT's two files, checked against the model and copied unchanged.
Also has the arguments of the package for adapters.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from trt_responses.prepare.checkpoint.expected import expected_tensors
from trt_responses.prepare.checkpoint.peft import CONFIG, MODULES, WEIGHTS, Peft, open_peft
from trt_responses.prepare.faults import PrepareError, refusal
from trt_responses.prepare.files import engine_file, sha256_of
from trt_responses.prepare.shelf.adapters import FOLDER, Adapter
from trt_responses.prepare.shelf.card import Card, architecture_of
from trt_responses.prepare.shelf.versions import now

TARGETS = {
    "attn_q": "attn_q",
    "attn_k": "attn_k",
    "attn_v": "attn_v",
    "attn_output": "attn_dense",
}
"""The matrices that can have an adapter: llama.cpp's names, and the package's."""
QKV = ("attn_q", "attn_k", "attn_v")
FILES = (WEIGHTS, CONFIG)
PEFT_NAMES = {ours: theirs for theirs, ours in MODULES.items()}


def import_adapter(source: Path, directory: Path, card: Card, name: str) -> Adapter:
    """Check an adapter against an engine's model, and copy it into the folder of adapters."""
    if not source.is_dir():
        raise PrepareError(
            f"{source.name} is a file; give a directory with {CONFIG} and {WEIGHTS}, the only form "
            "that TensorRT-LLM reads."
        )
    adapter = open_peft(source)
    _check(source, adapter, card)
    folder, part = directory / FOLDER / name, directory / FOLDER / f"{name}.part"
    for earlier in (part, folder):  # of an addition that was not finished
        shutil.rmtree(earlier, ignore_errors=True)
    part.mkdir()
    for file in FILES:
        shutil.copyfile(source / file, part / file)
    part.rename(folder)
    files = tuple(engine_file(folder / file, sha256_of(folder / file), name) for file in FILES)
    return Adapter(name, source.name, adapter.rank, adapter.modules, files, now())


def lora_arguments(adapters: Sequence[Adapter]) -> Mapping[str, object]:
    """The arguments of `LLM` for these adapters; empty without adapters.
    Each request names its adapter, so no directory is given: with one the package reads that
    adapter alone. Queries, keys and values must have adapters together; zeros fill the missing
    ones.
    """
    if not adapters:
        return {}
    modules = {module for adapter in adapters for module in adapter.modules}
    if modules & {*QKV}:
        modules |= {*QKV}
    count = len(adapters)
    return {
        "lora_config": {
            "lora_target_modules": [TARGETS[name] for name in TARGETS if name in modules],
            "max_lora_rank": max(adapter.rank for adapter in adapters),
            "max_loras": count,
            "max_cpu_loras": count,
        }
    }


def _check(source: Path, adapter: Peft, card: Card) -> None:
    """Refuse an adapter that is not a LoRA of this model's attention."""
    expected = expected_tensors(architecture_of(card))
    for name, (down, up) in adapter.pairs.items():
        block, _, module = name.removesuffix(".weight").rpartition(".")
        if module not in TARGETS:
            raise refusal(f"{source.name}, {name}", "a LoRA", f"one of {', '.join(TARGETS)}")
        layer = block.removeprefix("blk.")
        base = expected.get(f"model.layers.{layer}.{PEFT_NAMES[module]}.weight")
        if base is None:
            raise refusal(f"{source.name}, {name}", f"layer {layer}", "one that the model has")
        outputs, inputs = base.shape
        if (down.shape[1], up.shape[0]) != (inputs, outputs):
            found = f"{down.shape[1]} inputs and {up.shape[0]} outputs"
            raise refusal(
                f"{source.name}, {name}", found, f"{inputs} and {outputs}: another model's?"
            )

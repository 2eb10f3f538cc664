"""An adapter for llama.cpp: a GGUF file of LoRA matrices, copied or converted from PEFT's
directory. Compares every matrix with the model's matrix that it changes: llama.cpp's own error
names neither. Uses llama.cpp's keys of adapters; starts nothing.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

from trt_responses.prepare.checkpoint.peft import floats, module_names, open_peft
from trt_responses.prepare.checkpoint.safetensors import widen
from trt_responses.prepare.faults import PrepareError, refusal, shown
from trt_responses.prepare.files import GGUF, MODEL, engine_file, sha256_of
from trt_responses.prepare.llamacpp.gguf_file import GgufHead, StoredTensor, Value, read_gguf
from trt_responses.prepare.shelf.adapters import FOLDER, Adapter
from trt_responses.prepare.shelf.card import Card
from trt_responses.prepare.shelf.versions import now

ARCHITECTURE = "general.architecture"
ALPHA = "adapter.lora.alpha"
KEYS = {"general.type": b"adapter", "adapter.type": b"lora"}
ACTIVATED = "adapter.alora.invocation_tokens"
HALVES = (".lora_a", ".lora_b")
KINDS = {Kind.F32: "<f4", Kind.F16: "<f2", Kind.BF16: "<u2"}
FROM_PEFT = ("gpt-oss", "qwen3")
"""Architectures whose matrices have the same order in GGUF files and at Hugging Face."""


class Shapes(NamedTuple):
    """The shapes of one LoRA's matrices, with the rank between inputs and outputs."""

    down: tuple[int, ...]
    up: tuple[int, ...]


def import_adapter(source: Path, directory: Path, card: Card, name: str) -> Adapter:
    """Check an adapter against an engine's model, and write it into the folder of adapters."""
    model = read_gguf(directory / MODEL)
    target = directory / FOLDER / f"{name}{GGUF}"
    part = target.with_name(f"{target.name}.part")
    try:
        if source.is_dir():
            shapes = _converted(source, model, part)
        else:
            shapes = _copied(source, model, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    rank = max(each.up[-1] for each in shapes.values())
    files = (engine_file(target, sha256_of(target)),)
    return Adapter(name, source.name, rank, module_names(shapes), files, now())


def _copied(source: Path, model: GgufHead, part: Path) -> Mapping[str, Shapes]:
    """Copy a GGUF file, and check the copy, which no other program changes."""
    shutil.copyfile(source, part)
    head = read_gguf(part)
    for key, expected in KEYS.items():
        if head.keys.get(key) != expected:
            place, found = f"{source.name}, {key}", shown(head.keys.get(key))
            raise refusal(place, found, f"'{_text(expected)}', as adapters have it")
    own, models = head.keys.get(ARCHITECTURE), model.keys.get(ARCHITECTURE)
    if own != models:
        place = f"{source.name}, {ARCHITECTURE}"
        raise refusal(place, shown(own), f"{shown(models)}, the model's")
    alpha = head.keys.get(ALPHA)
    if not isinstance(alpha, float) or not math.isfinite(alpha):
        raise refusal(f"{source.name}, {ALPHA}", shown(alpha), "a number")
    if ACTIVATED in head.keys:
        raise refusal(f"{source.name}, {ACTIVATED}", "one", "none: it is not applied to all tokens")
    for tensor in head.tensors.values():
        _check_values(source, tensor)
    return _checked(source, _pairs(source, head), model)


def _pairs(source: Path, head: GgufHead) -> dict[str, Shapes]:
    pairs: dict[str, Shapes] = {}
    for name in head.tensors:
        base, dot, half = name.rpartition(".")
        if dot + half not in HALVES:
            raise refusal(
                f"{source.name}, tensor", shown(name), "names that end in .lora_a, .lora_b"
            )
        if not all(base + each in head.tensors for each in HALVES):
            raise refusal(f"{source.name}, {shown(base)}", f"{half} alone", "lora_a and lora_b")
        down, up = (head.tensors[base + each].shape for each in HALVES)
        pairs[base] = Shapes(down, up)
    return pairs


def _check_values(source: Path, tensor: StoredTensor) -> None:
    if tensor.kind not in KINDS:
        kinds = ", ".join(kind.name for kind in KINDS)
        raise refusal(f"{source.name}, {shown(tensor.name)}", tensor.kind.name, kinds)
    values = tensor.read().view(KINDS[tensor.kind])
    if not np.isfinite(widen(values)).all():
        found = "a number that is not finite"
        raise refusal(f"{source.name}, {shown(tensor.name)}", found, "finite ones")


def _converted(source: Path, model: GgufHead, part: Path) -> Mapping[str, Shapes]:
    """Write a GGUF file of the adapter that PEFT saved in a directory."""
    architecture = _text(model.keys.get(ARCHITECTURE, b""))
    if architecture not in FROM_PEFT:
        raise PrepareError(
            f"{source.name}: found a directory, expected a GGUF file for a model of "
            f"{architecture}: make one with llama.cpp's convert_lora_to_gguf.py."
        )
    adapter = open_peft(source)
    shapes = {name: Shapes(pair.down.shape, pair.up.shape) for name, pair in adapter.pairs.items()}
    _checked(source, shapes, model)
    writer = gguf.GGUFWriter(part, architecture)
    for key, value in KEYS.items():
        writer.add_string(key, value.decode())
    writer.add_float32(ALPHA, adapter.alpha)
    for name, pair in adapter.pairs.items():
        for half, tensor in zip(HALVES, pair, strict=True):
            writer.add_tensor(name + half, np.ascontiguousarray(floats(tensor)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return shapes


def _checked(source: Path, pairs: Mapping[str, Shapes], model: GgufHead) -> Mapping[str, Shapes]:
    """The pairs. Refuses one that does not fit a matrix of the model."""
    if not pairs:
        raise refusal(source.name, "no tensors", "an adapter's")
    for name, (down, up) in pairs.items():
        place = f"{source.name}, {shown(name)}"
        base = model.tensors.get(name)
        if base is None or len(base.shape) < 2 or name == "token_embd.weight":
            raise refusal(place, "a LoRA", "one for a matrix of the model")
        (*experts, outputs, inputs), rank = base.shape, up[-1]
        if down != (*experts, rank, inputs) or up != (*experts, outputs, rank):
            fits = (*experts, "rank", inputs), (*experts, outputs, "rank")
            raise refusal(place, f"{down} and {up}", f"{fits[0]} and {fits[1]}: another model's?")
    return pairs


def _text(value: Value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else shown(value)

"""Checks whether this machine can start TensorRT-LLM on a checkpoint: one sentence per fault.
Compares given facts with the requirements; starts nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from trt_responses.prepare.checkpoint.open import Checkpoint
from trt_responses.prepare.faults import PrepareError, shown
from trt_responses.prepare.files import json_or_nothing
from trt_responses.prepare.hardware import Hardware
from trt_responses.prepare.known_bad import known_bad
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.trtllm.model import Model, TemplateModel, shape_of
from trt_responses.prepare.trtllm.profiles import GpuClass, class_of, parallel_fault

OLDEST_PACKAGE = (1, 2, 1)
OLDEST_DRIVER = 575
"""The oldest driver in NVIDIA's guide. The image is built for 580: older drivers need CUDA's
forward compatibility."""
IMAGE = "nvcr.io/nvidia/tensorrt-llm/release:1.2.1"
CACHE_BYTES = 8 << 30
"""Bytes for the kernels compiled at the first start, with a margin."""
SHARE_FOR_WEIGHTS = 0.85
"""The share of a GPU's free memory for weights; the rest is for the cache of contexts and for
graphs."""
GUIDE_END = "<|return|>"
DTYPES = ("bfloat16", "auto", None)
KEPT = ("model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head")
"""Modules without MXFP4, by their names in the published configurations."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def harm_of(hardware: Hardware, gpus: int = 2) -> str | None:
    """The known fault of the installed TensorRT-LLM in its answers with so many GPUs, in one
    sentence, or None."""
    installed = {"tensorrt_llm": hardware.package or ""}
    for row in known_bad(installed, gpus):
        if row.effect == "answers":
            return f"package: found TensorRT-LLM {row.release}: {row.what}; use another release."
    return None


def refuse_harm(hardware: Hardware, arguments: Mapping[str, object]) -> None:
    """Refuse a release that is known to answer wrongly with these arguments."""
    if harm := harm_of(hardware, _world(arguments)):
        raise PrepareError(f"{harm} `--allow-known-harm` builds with it anyway.")


def machine_faults(
    hardware: Hardware, arguments: Mapping[str, object], weights_bytes: int, nodes: int = 1
) -> list[str]:
    """The reasons why no engine can start on this machine; empty if one can. Assumes that all nodes
    are alike."""
    world = _world(arguments)
    local = -(-world // nodes)
    return [
        *_package(hardware),
        *_gpus(hardware, local),
        *_memory(hardware, local, weights_bytes / world),
        *_room(hardware, arguments, world),
    ]


def checkpoint_faults(checkpoint: Model, arguments: Mapping[str, object]) -> list[str]:
    """The faults that TensorRT-LLM would refuse or misread, beyond the checks of every engine."""
    found = [] if isinstance(checkpoint, TemplateModel) else _faults(checkpoint, arguments)
    if (pipeline := arguments.get("pipeline_parallel_size", 1)) != 1:
        found.append(
            f"parallelism: found {pipeline} pipeline stages, expected 1, the supported number."
        )
    shape = shape_of(checkpoint)
    if sentence := parallel_fault(arguments, shape.experts, shape.heads, shape.kv_heads):
        found.append(f"parallelism: {sentence}; choose another number of GPUs.")
    return found


def _faults(checkpoint: Checkpoint, arguments: Mapping[str, object]) -> list[str]:
    """The faults of a gpt-oss.

    `open_checkpoint` has already checked the fields that TensorRT-LLM ignores or has as constants
    (layer types, the swiglu limit, the rest of YaRN).
    """
    found = []
    if checkpoint.layout != "hf":
        found.append(
            "checkpoint: found OpenAI's original layout, expected Hugging Face's; TensorRT-LLM "
            "reads its configuration through transformers, so use the converted checkpoint."
        )
    if arguments.get("guided_decoding_backend") is not None:
        found += [
            f"checkpoint, {name}: found no such file, expected one; guided decoding needs the "
            "tokenizer next to the weights."
            for name in TOKENIZER_FILES
            if not (checkpoint.directory / name).is_file()
        ]
    return [*found, *_config_faults(checkpoint, arguments)]


def _config_faults(checkpoint: Checkpoint, arguments: Mapping[str, object]) -> Iterator[str]:
    config = json_or_nothing(checkpoint.directory / "config.json")
    dtype = config.get("torch_dtype", config.get("dtype"))
    if checkpoint.layout == "hf" and dtype not in DTYPES:
        found = shown(dtype)
        yield f"config.json, torch_dtype: found {found}, expected 'bfloat16' or nothing."
    quantization = config.get("quantization_config")
    if isinstance(quantization, dict):
        kept = quantization.get("modules_to_not_convert")
        missing = [name for name in KEPT if not isinstance(kept, list) or name not in kept]
        if missing:
            yield (
                f"config.json, modules_to_not_convert: found no {', '.join(missing)}, expected "
                "them; TensorRT-LLM would read those weights as MXFP4."
            )
    if arguments.get("guided_decoding_backend") is not None:
        tokenizer = json_or_nothing(checkpoint.directory / "tokenizer_config.json")
        end = tokenizer.get("eos_token")
        if isinstance(end, dict):
            end = end.get("content")
        if end != GUIDE_END:
            yield (
                f"tokenizer_config.json, eos_token: found {shown(end)}, expected {GUIDE_END!r}, "
                "which ends a guide."
            )


def refuse_tensorrt_checkpoint(directory: Path) -> None:
    """Refuse an engine of `trtllm-build`: it is for another backend, which never supported
    gpt-oss."""
    if (directory / "rank0.engine").exists():
        raise PrepareError(
            f"{directory} is an engine of trtllm-build, whose backend does not support gpt-oss; "
            "give the checkpoint itself, which TensorRT-LLM's PyTorch backend loads."
        )


def gpu_class_of(hardware: Hardware) -> GpuClass | None:
    """The class of this machine's GPUs; None without a supported GPU."""
    try:
        return class_of(hardware.gpus[0].sm) if hardware.gpus else None
    except PrepareError:
        return None


def _package(hardware: Hardware) -> Iterator[str]:
    oldest = ".".join(map(str, OLDEST_PACKAGE))
    if hardware.package is None:
        yield (
            f"package: TensorRT-LLM {oldest} or newer is not installed; run in the container "
            f"{IMAGE}, and set TRT_RESPONSES_TRTLLM_PYTHON to its interpreter."
        )
    elif _numbers(hardware.package) < OLDEST_PACKAGE:
        yield (
            f"package: found TensorRT-LLM {hardware.package}, expected {oldest} or newer: older "
            "ones corrupt the cache of contexts; update the container."
        )


def _gpus(hardware: Hardware, needed: int) -> Iterator[str]:
    if not hardware.gpus:
        yield f"GPU: found none ({hardware.no_gpu}), expected one of Hopper's generation or newer."
        return
    found = len(hardware.gpus)
    if found < needed:
        yield f"GPU: found {found}, expected {needed}; use fewer in the profile, or more machines."
    if len({gpu.name for gpu in hardware.gpus[:needed]}) > 1:
        yield "GPU: found different models, expected one; choose with CUDA_VISIBLE_DEVICES."
    try:
        class_of(hardware.gpus[0].sm)
    except PrepareError as error:
        yield str(error)
    driver = hardware.gpus[0].driver
    if _numbers(driver)[:1] < (OLDEST_DRIVER,):
        yield f"driver: found {driver}, expected {OLDEST_DRIVER}, better 580, or newer; update it."


def _memory(hardware: Hardware, needed: int, share: float) -> Iterator[str]:
    """The fault of a GPU with too little memory for its share of the weights."""
    used = hardware.gpus[:needed]
    if not used:
        return
    free = min(gpu.free_bytes for gpu in used)
    if share > free * SHARE_FOR_WEIGHTS:
        yield (
            f"GPU memory: found {megabytes(free)} free, expected {megabytes(share)} for the "
            "weights and as much again for contexts; stop other programs on it, or use more GPUs."
        )


def _room(hardware: Hardware, arguments: Mapping[str, object], world: int) -> Iterator[str]:
    if hardware.free_disk_bytes < CACHE_BYTES:
        yield (
            f"disk: found {megabytes(hardware.free_disk_bytes)} free, expected "
            f"{megabytes(CACHE_BYTES)} for compiled kernels; make room."
        )
    if world > 1 and not hardware.mpi and not arguments.get("orchestrator_type"):
        yield (
            "MPI: found none, expected Open MPI for more than one GPU; install libopenmpi-dev, or "
            f"run in the container {IMAGE}."
        )


def _world(arguments: Mapping[str, object]) -> int:
    sizes = (arguments.get("tensor_parallel_size"), arguments.get("pipeline_parallel_size"))
    return math.prod(size for size in sizes if isinstance(size, int))


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, enough to compare `1.3.0rc2` with `1.2.1`."""
    return tuple(int(number) for number in re.findall(r"\d+", version.split("rc")[0])[:3])

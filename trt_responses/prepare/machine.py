"""The facts of the serving machine that a card is compared with: packages, memory and GPUs.
Reads them; `shelf.card` compares.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from trt_responses.frozen import dataclass
from trt_responses.prepare.hardware import gpu_facts, installed_version, package_version
from trt_responses.prepare.memory import memory

LIBRARIES = (
    *("gguf", "numpy", "onnx", "onnxruntime", "tensorrt_llm", "xllamacpp"),
    *(f"tensorrt_rtx_cu13_{part}" for part in ("bindings", "libs")),
)


@dataclass(frozen=True, slots=True)
class ServingMachine:
    """The facts of the serving machine that a card is compared with."""

    byte_order: str
    memory_bytes: int
    """The most bytes that this process can use, within a container's limit."""
    libraries: Mapping[str, str]
    hardware: Mapping[str, str] = field(default_factory=dict)


def this_machine(trtllm_python: Path | None = None) -> ServingMachine:
    """This machine. `trtllm_python`: the interpreter with TensorRT-LLM, if it is another one."""
    libraries = library_versions()
    if trtllm_python is not None and (found := package_version(trtllm_python)):
        libraries["tensorrt_llm"] = found
    return ServingMachine(sys.byteorder, memory().total_bytes, libraries, gpu_facts())


def library_versions() -> dict[str, str]:
    """The release of Python and of each installed package that builds or serves engines."""
    installed = {name: installed_version(name) for name in LIBRARIES}
    releases = {name: release for name, release in installed.items() if release is not None}
    return {"python": platform.python_version(), **releases}

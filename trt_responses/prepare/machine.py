"""What serving stands on, as far as a card can disagree with it.

Knows packages by name, memory and GPUs; compares nothing.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from trt_responses.frozen import dataclass
from trt_responses.prepare.hardware import gpu_facts, package_version
from trt_responses.prepare.memory import memory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LIBRARIES = (
    *("gguf", "numpy", "onnx", "onnxruntime", "tensorrt_llm", "xllamacpp"),
    *(f"tensorrt_rtx_cu13_{part}" for part in ("bindings", "libs")),
)


@dataclass(frozen=True, slots=True)
class ServingMachine:
    """The machine that serves, as far as a card can disagree with it."""

    byte_order: str
    memory_bytes: int
    """The most bytes that this process may use, a container's limit included."""
    libraries: Mapping[str, str]
    hardware: Mapping[str, str] = field(default_factory=dict)


def this_machine(trtllm_python: Path | None = None) -> ServingMachine:
    """This machine. The interpreter is the one that has TensorRT-LLM, if it is not this one."""
    libraries = library_versions()
    if trtllm_python is not None and (found := package_version(trtllm_python)):
        libraries["tensorrt_llm"] = found
    return ServingMachine(sys.byteorder, memory().total_bytes, libraries, gpu_facts())


def library_versions() -> dict[str, str]:
    """Python's release, and those of the installed packages that engines are made or served by."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

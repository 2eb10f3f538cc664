"""Checks GPU, driver and TensorRT-LLM: present or not, and why they cannot serve gpt-oss."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version

from trt_responses.doctor.check import Check, State
from trt_responses.prepare.hardware import PACKAGE, Hardware
from trt_responses.prepare.progress import megabytes
from trt_responses.prepare.trtllm.preflight import gpu_class_of, harm_of, machine_faults
from trt_responses.prepare.trtllm.profiles import arguments_for

GPT_OSS_20B_BYTES = 13_800_000_000
CONTEXT = 131_072
NUMPY_BOUND = re.compile(r"numpy\b[^;]*<\s*(\d+)")


def gpu_check(hardware: Hardware) -> Check:
    """Whether there is a GPU that TensorRT-LLM supports."""
    if not hardware.gpus:
        return Check("gpu", "note", f"none: {hardware.no_gpu}")
    first = hardware.gpus[0]
    summary = (
        f"{len(hardware.gpus)} x {first.name}, compute capability {first.sm / 10:.1f}, "
        f"{megabytes(first.free_bytes)} of {megabytes(first.memory_bytes)} free, "
        f"driver {first.driver}"
    )
    return Check("gpu", "ok", summary)


def tensorrt_llm_check(hardware: Hardware) -> Check:
    """Whether TensorRT-LLM could serve here. A problem is a fault only if the package and a GPU are
    present; else it is a note."""
    gpu_class = gpu_class_of(hardware)
    name = "tensorrt-llm"
    arguments = {} if gpu_class is None else arguments_for("balanced", gpu_class, 1, CONTEXT)
    if faults := machine_faults(hardware, arguments, GPT_OSS_20B_BYTES):
        state: State = "fault" if hardware.package and hardware.gpus else "note"
        return Check(name, state, f"cannot serve gpt-oss here. {' '.join(faults)}")
    if harm := harm_of(hardware):
        return Check(name, "note", harm)
    return Check(
        name, "ok", f"{hardware.package} can serve gpt-oss-20b on one {hardware.gpus[0].name}"
    )


def numpy_checks(
    requirements: Sequence[str] | None = None, installed: str | None = None
) -> Iterator[Check]:
    """Whether numpy meets TensorRT-LLM's bound, if both are installed in this Python."""
    try:
        required = (requires(PACKAGE) or ()) if requirements is None else requirements
    except PackageNotFoundError:
        return
    numpy = version("numpy") if installed is None else installed
    for bound in filter(None, map(NUMPY_BOUND.match, required)):
        if int(numpy.split(".")[0]) >= int(bound[1]):
            yield Check(
                "numpy for tensorrt-llm",
                "fault",
                f"{numpy}, but TensorRT-LLM needs a version below {bound[1]}",
                f"pip install 'numpy<{bound[1]}'",
            )

"""The hardware and software of this machine that TensorRT-LLM needs: GPUs, driver, package, MPI,
disk.
Reads and reports; `trtllm.preflight` judges. Loads no heavy package.
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trt_responses.frozen import dataclass
from trt_responses.prepare.files import nearest

PACKAGE = "tensorrt-llm"
QUERY = ("name", "compute_cap", "memory.total", "memory.free", "driver_version")
QUERY_S = 20.0
MIB = 1 << 20

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as the driver describes it."""

    name: str
    sm: int
    """The compute capability without its dot: 90 is Hopper, 100 data-centre Blackwell."""
    memory_bytes: int
    free_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class Hardware:
    """The parts of this machine that TensorRT-LLM needs."""

    gpus: tuple[Gpu, ...]
    no_gpu: str | None
    """The reason why there is no GPU."""
    package: str | None
    """The installed version of TensorRT-LLM."""
    mpi: bool
    free_disk_bytes: int


def this_hardware(directory: Path, trtllm_python: Path | None = None) -> Hardware:
    """The hardware of this machine. `directory`: the place for engines. `trtllm_python`: the
    interpreter with TensorRT-LLM, if it is another one."""
    gpus, why = visible_gpus()
    return Hardware(
        gpus=gpus,
        no_gpu=why,
        package=package_version(trtllm_python),
        mpi=shutil.which("mpirun") is not None or ctypes.util.find_library("mpi") is not None,
        free_disk_bytes=free_disk_bytes(directory),
    )


def gpu_facts(gpus: Sequence[Gpu] | None = None) -> dict[str, str]:
    """The facts for the card of a GPU engine. They are compared with the machine that serves it."""
    found = visible_gpus()[0] if gpus is None else gpus
    if not found:
        return {}
    first = found[0]
    return {
        "gpu": first.name,
        "gpus": str(len(found)),
        "sm": str(first.sm),
        "driver": first.driver,
    }


def package_version(python: Path | None = None) -> str | None:
    """The release of TensorRT-LLM in an interpreter (by default this one); None if it has none."""
    return installed_version(PACKAGE) if python is None else _version_elsewhere(python)


def installed_version(name: str) -> str | None:
    """The release of a package in this interpreter; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _version_elsewhere(python: Path) -> str | None:
    code = f"from importlib.metadata import version; print(version({PACKAGE!r}))"
    try:
        return _output((str(python), "-P", "-c", code)).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def free_disk_bytes(directory: Path) -> int:
    """The free bytes on the disk of a directory, which need not exist yet."""
    return shutil.disk_usage(nearest(directory)).free


def visible_gpus(
    run: Callable[[Command], str] | None = None, *, visible: str | None = None
) -> tuple[tuple[Gpu, ...], str | None]:
    """The GPUs that a child process would see, and the reason if there are none."""
    run = run or _output
    command = ("nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits")
    try:
        rows = [row.strip() for row in run(command).splitlines() if row.strip()]
    except FileNotFoundError:
        return (), "nvidia-smi was not found: no NVIDIA driver is installed"
    except (OSError, subprocess.SubprocessError) as error:
        return (), f"nvidia-smi failed ({_why(error)})"
    found = [gpu for row in rows if (gpu := _gpu(row)) is not None]
    if len(found) != len(rows) or not found:
        return (), f"nvidia-smi printed {rows[0] if rows else 'nothing'!r}, which is not a GPU"
    chosen = _chosen(found, os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible)
    return chosen, None if chosen else "CUDA_VISIBLE_DEVICES hides every GPU"


def _output(command: Command) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_S, check=True)
    return done.stdout


def _why(error: OSError | subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        lines = str(error.stdout or error.stderr or "").strip().splitlines()
        return lines[0] if lines else f"status {error.returncode}"
    return str(error)


def _gpu(row: str) -> Gpu | None:
    values = [value.strip() for value in row.split(",")]
    if len(values) != len(QUERY):
        return None
    name, capability, total, free, driver = values
    try:
        sm = int(capability.replace(".", ""))
        return Gpu(name, sm, int(total) * MIB, int(free) * MIB, driver)
    except ValueError:
        return None


def _chosen(gpus: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """The GPUs in CUDA_VISIBLE_DEVICES by index. Of UUIDs only the number counts."""
    if visible is None:
        return tuple(gpus)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if not all(name.isdigit() for name in names):
        return tuple(gpus[: len(names)])
    return tuple(gpus[int(name)] for name in names if int(name) < len(gpus))

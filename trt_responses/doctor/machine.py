"""Checks Python, packages, processor, memory and disk, and which models fit. Needs no GPU."""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import requires
from pathlib import Path
from typing import Any, NamedTuple

from trt_responses.doctor.check import Check
from trt_responses.prepare.files import nearest
from trt_responses.prepare.hardware import free_disk_bytes, installed_version
from trt_responses.prepare.memory import memory, text_of
from trt_responses.prepare.progress import megabytes
from trt_responses.settings import Settings

DISTRIBUTION = "trt-responses"
OLDEST_PYTHON = (3, 11)
OPTIMIZED = "--enable-optimizations"
SLOW_PYTHON = (
    "a request costs about a tenth more CPU; `rm -r .venv && make install PYTHON=/usr/bin/python3`"
)
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?(?P<range>[^;]*)(;(?P<marker>.*))?")
FEATURES = ("avx2", "avx512f", "amx_tile", "asimd", "sve")
"""The processor features that llama.cpp's kernels use, on x86 and on ARM."""
CPU_INFO = Path("/proc/cpuinfo")
FREE_DISK_BYTES = 1 << 30


class Model(NamedTuple):
    """A model's needs on the embedded engine: weights in MXFP4 and a short context."""

    name: str
    memory_bytes: int
    disk_bytes: int


MODELS = (
    Model("the demo", 1 << 30, 1 << 28),
    Model("gpt-oss-20b", 15 << 30, 13 << 30),
    Model("gpt-oss-120b", 68 << 30, 64 << 30),
)


def python_check(
    installed: tuple[int, ...] = sys.version_info[:3], built: Mapping[str, Any] | None = None
) -> Check:
    """Whether the server supports this Python, and whether its build is a fast one."""
    text = ".".join(map(str, installed))
    if installed < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        remedy = f"install Python {oldest} or newer, then `make install`"
        return Check("python", "fault", text, remedy)
    if _is_slow(sysconfig.get_config_vars() if built is None else built):
        return Check("python", "note", f"{text}, built without {OPTIMIZED}", SLOW_PYTHON)
    return Check("python", "ok", f"{text} on {platform.system()} {platform.machine()}")


def _is_slow(built: Mapping[str, Any]) -> bool:
    """Whether it was built without a profile. Debian's has one, and no flag to ask for it."""
    return bool(built.get("PGO_PROF_USE_FLAG")) and OPTIMIZED not in built.get("CONFIG_ARGS", "")


def package_checks(requirements: Sequence[str] | None = None) -> list[Check]:
    """Checks of all required packages and of installed extras."""
    required = (requires(DISTRIBUTION) or ()) if requirements is None else requirements
    every = [check for text in required if (check := _package(text)) is not None]
    wrong = [check for check in every if check.state == "fault"]
    pins = [check.found for check in every if "==" in check.found and check.state == "ok"]
    if wrong:
        return wrong
    return [Check("packages", "ok", f"{len(every)} as required; pinned: {', '.join(pins)}")]


def _package(requirement: str) -> Check | None:
    """The check of one package; None for a missing one that only an extra or another system
    needs."""
    parts = REQUIREMENT.match(requirement)
    assert parts is not None
    name, bounds, marker = parts["name"], parts["range"].strip(), parts["marker"]
    installed = installed_version(name)
    if installed is None:
        if marker is not None:
            return None
        return Check(f"package {name}", "fault", "not installed", "run `make install`")
    pin = bounds.removeprefix("==") if bounds.startswith("==") else None
    if pin is not None and installed != pin:
        return Check(f"package {name}", "fault", f"{installed}, not {pin}", "run `make install`")
    return Check(f"package {name}", "ok", f"{name}=={installed}" if pin else f"{name} {installed}")


def cpu_check(info: str | None = None) -> Check:
    """Whether the processor has the features that llama.cpp's kernels use."""
    text = text_of(CPU_INFO) if info is None else info
    lists = re.findall(r"^(?:flags|Features)\s*: (.*)$", text, flags=re.MULTILINE)
    words = lists[0].split() if lists else []
    present = [name for name in FEATURES if name in words]
    cores = len(lists) or os.cpu_count() or 1
    if lists and not {"avx2", "asimd"} & set(present):
        return Check(
            "processor", "note", f"{cores} cores without AVX2", "the embedded engine will be slow"
        )
    return Check("processor", "ok", f"{cores} cores, {', '.join(present) or 'features unknown'}")


def memory_check(size_bytes: int | None = None) -> Check:
    """The memory that this process may use."""
    usable = memory().total_bytes if size_bytes is None else size_bytes
    if usable >= MODELS[0].memory_bytes:
        return Check("memory", "ok", f"{megabytes(usable)} usable")
    least = megabytes(MODELS[0].memory_bytes)
    return Check("memory", "fault", f"{megabytes(usable)} usable", f"the demo needs {least}")


def disk_check(directory: Path, free_bytes: int) -> Check:
    """The free space on the disk of a directory."""
    free = f"{megabytes(free_bytes)} free for {directory}"
    if free_bytes >= FREE_DISK_BYTES:
        return Check("disk", "ok", free)
    remedy = "free disk space, or set TRT_RESPONSES_ENGINES_DIR to a directory on another disk"
    return Check("disk", "fault", free, remedy)


def may_write(path: Path) -> bool:
    """Whether this process may write there."""
    return os.access(path, os.W_OK)


def writable_checks(
    settings: Settings, allowed: Callable[[Path], bool] = may_write
) -> Iterator[Check]:
    """A write check for each path in the settings, or for its nearest parent that exists."""
    for name, value in settings:
        if not isinstance(value, Path):
            continue
        writable = allowed(at := nearest(value)) and (at.is_dir() or not name.endswith("_dir"))
        yield Check(
            name.replace("_", " "),
            "ok" if writable else "fault",
            f"{value} can{'' if writable else 'not'} be written",
            "" if writable else f"set TRT_RESPONSES_{name.upper()} to a path that you can write",
        )


def model_checks(memory_bytes: int | None = None, free_bytes: int | None = None) -> Iterator[Check]:
    """Whether each model fits the embedded engine on this machine, by size alone."""
    usable = memory().total_bytes if memory_bytes is None else memory_bytes
    disk = free_disk_bytes(Path()) if free_bytes is None else free_bytes
    for model in MODELS:
        name = f"embedded, {model.name}"
        if usable < model.memory_bytes:
            short = f"needs {megabytes(model.memory_bytes)} of memory, has {megabytes(usable)}"
            yield Check(name, "note", short)
        elif disk < model.disk_bytes:
            short = f"needs {megabytes(model.disk_bytes)} of disk, has {megabytes(disk)} free"
            yield Check(name, "note", short)
        else:
            yield Check(name, "ok", f"fits: {megabytes(model.memory_bytes)} of memory")

"""Python, packages, processor, memory and disk, and which models fit. Needs no GPU."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.doctor.check import Check
from trt_responses.prepare.hardware import free_disk_bytes
from trt_responses.prepare.memory import memory
from trt_responses.prepare.progress import megabytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from trt_responses.settings import Settings

DISTRIBUTION = "trt-responses"
OLDEST_PYTHON = (3, 11)
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?(?P<range>[^;]*)(;(?P<marker>.*))?")
FEATURES = ("avx2", "avx512f", "amx_tile", "asimd", "sve")
"""The features that llama.cpp's kernels ask of a processor, on x86 and on ARM."""
CPU_INFO = Path("/proc/cpuinfo")
FREE_DISK_BYTES = 1 << 30


class Model(NamedTuple):
    """The memory that a model takes on the embedded engine: its weights in MXFP4, and a short
    context."""

    name: str
    memory_bytes: int
    disk_bytes: int


MODELS = (
    Model("the demo", 1 << 30, 1 << 28),
    Model("gpt-oss-20b", 15 << 30, 13 << 30),
    Model("gpt-oss-120b", 68 << 30, 64 << 30),
)


def python_check(found: tuple[int, ...] = sys.version_info[:3]) -> Check:
    """Whether this Python is one that the server supports."""
    text = ".".join(map(str, found))
    if found >= OLDEST_PYTHON:
        return Check("python", "ok", f"{text} on {platform.system()} {platform.machine()}")
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Check("python", "fault", text, f"install Python {oldest} or newer, then `make install`")


def package_checks(requirements: Sequence[str] | None = None) -> list[Check]:
    """Every package that serving needs, and those of extras that are installed."""
    asked = (requires(DISTRIBUTION) or ()) if requirements is None else requirements
    found = [check for text in asked if (check := _package(text)) is not None]
    wrong = [check for check in found if check.state == "fault"]
    pins = [check.found for check in found if "==" in check.found and check.state == "ok"]
    if wrong:
        return wrong
    return [Check("packages", "ok", f"{len(found)} as required; pinned: {', '.join(pins)}")]


def _package(requirement: str) -> Check | None:
    """The check of one package; None for one of an extra, or of another system, that is not
    installed."""
    parts = REQUIREMENT.match(requirement)
    assert parts is not None
    name, wanted, marker = parts["name"], parts["range"].strip(), parts["marker"]
    try:
        installed = version(name)
    except PackageNotFoundError:
        if marker is not None:
            return None
        return Check(f"package {name}", "fault", "not installed", "run `make install`")
    pin = wanted.removeprefix("==") if wanted.startswith("==") else None
    if pin is not None and installed != pin:
        return Check(f"package {name}", "fault", f"{installed}, not {pin}", "run `make install`")
    return Check(f"package {name}", "ok", f"{name}=={installed}" if pin else f"{name} {installed}")


def cpu_check(info: str | None = None) -> Check:
    """Whether the processor has what llama.cpp's kernels ask for."""
    text = _read(CPU_INFO) if info is None else info
    lists = re.findall(r"^(?:flags|Features)\s*: (.*)$", text, flags=re.MULTILINE)
    words = lists[0].split() if lists else []
    present = [name for name in FEATURES if name in words]
    cores = len(lists) or os.cpu_count() or 1
    if lists and not {"avx2", "asimd"} & set(present):
        return Check(
            "processor", "note", f"{cores} cores without AVX2", "the embedded engine will be slow"
        )
    return Check("processor", "ok", f"{cores} cores, {', '.join(present) or 'features not told'}")


def memory_check(size_bytes: int | None = None) -> Check:
    """How much memory this process may use."""
    found = memory().total_bytes if size_bytes is None else size_bytes
    if found >= MODELS[0].memory_bytes:
        return Check("memory", "ok", f"{megabytes(found)} usable")
    least = megabytes(MODELS[0].memory_bytes)
    return Check("memory", "fault", f"{megabytes(found)} usable", f"the demo needs {least}")


def disk_check(directory: Path, free_bytes: int) -> Check:
    """How much room the disk of a directory has."""
    found = f"{megabytes(free_bytes)} free for {directory}"
    if free_bytes >= FREE_DISK_BYTES:
        return Check("disk", "ok", found)
    return Check("disk", "fault", found, "make room, or set TRT_RESPONSES_ENGINES_DIR elsewhere")


def nearest(path: Path) -> Path:
    """The path itself, or the first of its parents that is there."""
    return next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())


def may_write(path: Path) -> bool:
    """Whether this process may write there."""
    return os.access(path, os.W_OK)


def writable_checks(
    settings: Settings, allowed: Callable[[Path], bool] = may_write
) -> Iterator[Check]:
    """A check for each directory and file that the settings name, or for its nearest parent that
    exists."""
    for name, value in settings:
        if not isinstance(value, Path):
            continue
        place = nearest(value)
        writable = allowed(place) and (place.is_dir() or not name.endswith("_dir"))
        yield Check(
            name.replace("_", " "),
            "ok" if writable else "fault",
            f"{value} can{'' if writable else 'not'} be written",
            "" if writable else f"set TRT_RESPONSES_{name.upper()} to a place of your own",
        )


def model_checks(memory_bytes: int | None = None, free_bytes: int | None = None) -> Iterator[Check]:
    """Whether the embedded engine could serve each model here, by size alone."""
    usable = memory().total_bytes if memory_bytes is None else memory_bytes
    disk = free_disk_bytes(Path()) if free_bytes is None else free_bytes
    for model in MODELS:
        name = f"embedded, {model.name}"
        if usable < model.memory_bytes:
            short = f"needs {megabytes(model.memory_bytes)} of memory, {megabytes(usable)} is there"
            yield Check(name, "note", short)
        elif disk < model.disk_bytes:
            short = f"needs {megabytes(model.disk_bytes)} of disk, {megabytes(disk)} is free"
            yield Check(name, "note", short)
        else:
            yield Check(name, "ok", f"fits: {megabytes(model.memory_bytes)} of memory")


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""

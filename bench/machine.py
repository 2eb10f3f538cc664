"""Where and with what a benchmark ran, and whether it was quiet enough to mean anything."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGES = (
    *("trt-responses", "openai-harmony", "fastapi", "starlette", "uvicorn", "uvloop"),
    *("httptools", "pydantic", "orjson"),
)

MOST_SPREAD = 1.4
"""Slowest by fastest repeat of the floor, above which a row's ratio says nothing."""


def facts(others: Iterable[str] = ()) -> dict[str, object]:
    """Of `others`, the versions of those packages that are installed."""
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES} | _found(others),
    }


def _found(names: Iterable[str]) -> dict[str, str]:
    versions = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def folder() -> str:
    """The processor as the name of a folder: results of one are compared with each other alone."""
    return re.sub(r"[^a-z0-9]+", "-", _cpu().lower()).strip("-") or "unknown"


def cores() -> int:
    return len(os.sched_getaffinity(0))


def load() -> float:
    """Processes that wanted a core during the last minute."""
    return os.getloadavg()[0]


def is_busy() -> bool:
    return load() > cores()


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.partition(": ")[2] for x in lines if x.startswith("model name")), "unknown")

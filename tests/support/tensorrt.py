"""TensorRT's real binding, used in processes of its own: its library takes 90 MB."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from types import ModuleType

from trt_responses.prepare.tensorrt.binding import Binding

RTX = "tensorrt_rtx_bindings"


def with_the_real_binding(program: str) -> bytes:
    """What a program prints that has the binding as `real`."""
    command = [sys.executable, "-c", f"import {RTX} as real\n{program}"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


@cache
def real_names() -> dict[str, list[str]]:
    """What the binding has, each with the names in it."""
    printed = with_the_real_binding("""
import json
print(json.dumps({name: dir(getattr(real, name)) for name in dir(real)}))
""")
    names: dict[str, list[str]] = json.loads(printed)
    return names


@cache
def named_binding() -> Binding:
    """The binding for a build that leaves compiling to other processes: it has no names to call."""
    version = with_the_real_binding("print(real.__version__, end='')").decode()
    return Binding("rtx", version, ModuleType(RTX))

"""Whether the model's code could be shut in on this machine, and what it could reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses import backends
from trt_responses.doctor.check import Check

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.doctor.check import State
    from trt_responses.settings import Settings

NAME = "code_interpreter"
REACH = "code reads its interpreter's libraries, writes its own directory, and has no network"


def python_tool_check(
    settings: Settings, landlock_abi: Callable[[], int] = backends.landlock_abi
) -> Check:
    switched = f"switched {'off' if settings.python == 'off' else 'on'}"
    if settings.python == "unboxed":
        return Check(
            NAME,
            "note",
            "switched on WITHOUT A BOX: code has all rights of the server",
            "set TRT_RESPONSES_PYTHON to 'boxed'",
        )
    try:
        abi = landlock_abi()
    except backends.NoBox as fault:
        state: State = "fault" if settings.python == "boxed" else "note"
        remedy = "Linux 5.13 or newer with Landlock, on x86_64 or aarch64"
        return Check(NAME, state, f"{switched}; code cannot be shut in: {fault}", remedy)
    return Check(NAME, "ok", f"{switched}; Landlock {abi} and seccomp: {REACH}")

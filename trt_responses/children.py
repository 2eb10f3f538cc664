"""Child processes that end with the process that began them, even with one that was killed.

Runs in children before anything else: the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
SOURCE = str(Path(__file__).parents[1])
"""The directory of this package, for the import in a child."""


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Where Linux can, the kernel sends this process a signal when the thread that began it ends;
    a parent that has gone already ends it here."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The command, begun so that it ends with this process. A program that cannot be begun is an
    exit status of 127."""
    begin = _call("trt_responses.children", "become")
    return [sys.executable, "-I", "-S", "-c", begin, str(os.getpid()), *command]


def main_of(module: str, python: str = sys.executable) -> list[str]:
    """The command that runs `main` of a module of this package, isolated from the server's
    environment and directory; texts are UTF-8."""
    return [python, "-I", "-X", "utf8", "-c", _call(module, "main")]


def _call(module: str, name: str) -> str:
    return f"import sys; sys.path.insert(0, {SOURCE!r}); from {module} import {name}; {name}()"


def become() -> None:
    """Become the program that the arguments name behind the parent's number."""
    die_with(int(sys.argv[1]))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as fault:
        os.write(2, f"{sys.argv[2]}: {fault.strerror}\n".encode(errors="replace"))
        os._exit(127)

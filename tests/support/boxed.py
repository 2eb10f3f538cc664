"""Runs code in the box of another user: `python -m tests.support.boxed` reads what to run as JSON.

Stands on the standard library and on the package's tools alone, so that the interpreter of the
system can run it, which every user may.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses.tools import box
from trt_responses.tools.python.command import PROGRAMS, Command, Finished, Shell
from trt_responses.tools.python.process import (
    Ended,
    Interpreter,
    PythonProcess,
    readable_paths,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
MIB = 2**20


class Ran(NamedTuple):
    """What a call gave, or how the interpreter ended."""

    text: str
    fine: bool


def no_box() -> str | None:
    """Why this machine has none; None where it has one."""
    try:
        box.landlock_abi()
    except box.NoBox as fault:
        return str(fault)
    return None


def interpreter(
    executable: str = sys.executable, abi: int = box.HIGHEST_ABI, readable: Sequence[str] = ()
) -> Interpreter:
    """`readable`: what code may read besides the libraries."""
    return Interpreter(
        executable,
        (*readable_paths(executable), *readable),
        memory_bytes=1024 * MIB,
        file_bytes=64 * MIB,
        at_most_abi=abi,
    )


async def ran(directory: Path, how: Interpreter, codes: Sequence[str]) -> list[Ran]:
    """Each code in the same interpreter, or in a new one where the last has ended."""
    found: list[Ran] = []
    process: PythonProcess | None = None
    try:
        for code in codes:
            if process is None:
                process = PythonProcess(directory, how)
                await process.shut_in()
            try:
                async with asyncio.timeout(120):
                    found.append(Ran(*await process.call(code)))
            except Ended as ended:
                found.append(Ran(str(ended), fine=False))
                process.kill()
                process = None
    finally:
        if process is not None:
            process.kill()
    return found


def shell(abi: int = box.HIGHEST_ABI, readable: Sequence[str] = (), **changes: Any) -> Shell:
    """`readable`: what commands may read besides the system's programs."""
    limits: dict[str, Any] = {"memory_bytes": 512 * MIB, "file_bytes": 64 * MIB}
    return Shell(programs=(*PROGRAMS, *readable), at_most_abi=abi, **limits | changes)


async def commanded(
    directory: Path, how: Shell, *cmd: str, deadline_s: float = 120.0, workdir: str = "."
) -> Finished:
    """What a command gives."""
    command = Command(directory, how, cmd, {}, workdir)
    try:
        return await command.finished(deadline_s)
    finally:
        command.kill()


def processes_in(directory: Path) -> list[int]:
    """Processes that work below a directory."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and str(directory) in str((process / "cwd").readlink()):
                found.append(int(process.name))
        except OSError:
            continue
    return found


class Outsider(NamedTuple):
    """An ordinary user, and an interpreter that it may run."""

    executable: str
    uid: int


@cache
def outsider() -> Outsider | None:
    """None where a test cannot become another user."""
    system = shutil.which("python3", path="/usr/bin:/bin")
    if os.getuid() != 0 or system is None:
        return None
    try:
        user = pwd.getpwnam("nobody").pw_uid
    except KeyError:
        return None
    tried = subprocess.run(
        [system, "-c", "import sys, tests.support.boxed; assert sys.version_info >= (3, 11)"],
        cwd=ROOT,
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        user=user,
        group=user,
        extra_groups=[],
        capture_output=True,
        check=False,
    )
    return Outsider(system, user) if tried.returncode == 0 else None


def ran_as(user: Outsider, directory: Path, request: dict[str, Any]) -> list[list[Any]]:
    """The reply of a process of that user to a request: see `main`."""
    done = subprocess.run(
        [user.executable, "-m", "tests.support.boxed"],
        cwd=ROOT,
        env={"PYTHONDONTWRITEBYTECODE": "1", "SERVER_SECRET": "hunter2"},
        user=user.uid,
        group=user.uid,
        extra_groups=[],
        input=json.dumps({"directory": str(directory), **request}),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[list[Any]] = json.loads(done.stdout)
    return found


def main() -> None:
    """Run `codes` in one interpreter, or `commands` one after another."""
    request: dict[str, Any] = json.loads(sys.stdin.read())
    directory = Path(request["directory"])
    if "codes" in request:
        how = interpreter(sys.executable, request["abi"], request["readable"])
        print(json.dumps(asyncio.run(ran(directory, how, request["codes"]))))
        return
    with_shell = shell(request["abi"], request["readable"])
    found = [asyncio.run(commanded(directory, with_shell, *cmd)) for cmd in request["commands"]]
    print(json.dumps(found))


if __name__ == "__main__":
    main()

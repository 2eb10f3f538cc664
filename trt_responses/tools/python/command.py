"""The server's side of a command: starts it in its sandbox, reads it, and ends its whole tree.

Works with the keeper's pipes: no container and no model. The command's output is untrusted and
limited; its status comes on a pipe that the command cannot access.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from trt_responses.children import main_of
from trt_responses.frozen import dataclass
from trt_responses.tools.python.keeper import members
from trt_responses.tools.python.process import Bounded, Ended, drain, send

PROGRAMS = (
    *("/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64"),
    *("/usr/libexec", "/usr/share", "/usr/include", "/usr/local/bin", "/usr/local/lib"),
    *("/etc/localtime", "/etc/ld.so.cache", "/etc/alternatives"),
)
"""Paths that a command may read and run besides its directory: system programs, no settings."""
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
}
PROCESSES = 64
"""Maximum processes and threads of one command."""
OPEN_FILES = 64
END_S = 10.0
"""Timeout of ending a tree, which takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Shell:
    """Limits of commands."""

    memory_bytes: int
    """Limit for a command's whole tree, and for each process's address space."""
    file_bytes: int
    programs: tuple[str, ...] = PROGRAMS
    processes: int = PROCESSES
    at_most_abi: int = 6


class Finished(NamedTuple):
    """The result of a command."""

    stdout: str
    stderr: str
    status: int
    """Exit code; if negative, the signal that ended it."""
    ended_for: str | None
    """None if it ended by itself, else `time`, `memory` or `server`."""


class Command:
    """One command. The caller must `kill` it in the end."""

    def __init__(
        self,
        directory: Path,
        how: Shell,
        cmd: Sequence[str],
        env: Mapping[str, str],
        workdir: str = ".",
    ) -> None:
        self._group: int | None = None
        self._lines = b""
        self._request = {
            "cmd": list(cmd),
            "env": {**ENVIRONMENT, "HOME": str(directory), "TMPDIR": str(directory), **env},
            "workdir": workdir,
            "directory": str(directory),
            "programs": how.programs,
            "memory_bytes": how.memory_bytes,
            "address_bytes": how.memory_bytes,
            "file_bytes": how.file_bytes,
            "open_files": OPEN_FILES,
            "processes": how.processes,
            "abi": how.at_most_abi,
        }
        pipes = [os.pipe() for _ in range(3)]
        self._results, self._stdout, self._stderr = self._pipes = [read for read, _ in pipes]
        try:
            self._process = subprocess.Popen(
                [*main_of("trt_responses.tools.python.keeper"), str(pipes[0][1])],
                stdin=subprocess.PIPE,
                stdout=pipes[1][1],
                stderr=pipes[2][1],
                cwd=directory,
                env=ENVIRONMENT,
                pass_fds=(pipes[0][1],),
                start_new_session=True,
            )
        except BaseException:
            self._close()
            raise
        finally:
            for _, write in pipes:
                os.close(write)
        for pipe in self._pipes:
            os.set_blocking(pipe, False)

    async def finished(self, deadline_s: float) -> Finished:
        """Run it to its end or its deadline. Raises `Ended` if it cannot run."""
        loop = asyncio.get_running_loop()
        end: asyncio.Future[dict[str, Any]] = loop.create_future()
        outputs = Bounded(), Bounded()
        loop.add_reader(self._results, self._read_report, end)
        for pipe, output in zip(self._pipes[1:], outputs, strict=True):
            loop.add_reader(pipe, drain, pipe, output, 1)
        assert self._process.stdin is not None
        sending = asyncio.create_task(send(self._process.stdin, self._request))
        timed_out = False
        try:
            try:
                async with asyncio.timeout(deadline_s):
                    report = await asyncio.shield(end)
            except TimeoutError:
                timed_out = True
                self.kill_group()
                async with asyncio.timeout(END_S):
                    report = await end
        finally:
            sending.cancel()
            await asyncio.wait((sending,))
            for pipe in self._pipes:
                loop.remove_reader(pipe)
        for pipe, output in zip(self._pipes[1:], outputs, strict=True):
            drain(pipe, output)
        ended_for = "time" if timed_out else report["ended_for"]
        return Finished(outputs[0].text(), outputs[1].text(), report["status"], ended_for)

    @property
    def keeper(self) -> int:
        """The process that ends the command if the server dies."""
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """The process ids of the command's tree."""
        return [] if self._group is None else [each.pid for each in members(self._group)]

    def kill_group(self) -> None:
        """Have the keeper end the tree; the waiter for its end is notified."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def kill(self) -> None:
        """End the whole tree and wait for that. Synchronous and idempotent."""
        self.kill_group()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0 and self._group is not None:
            with suppress(ProcessLookupError):  # the keeper was killed
                os.killpg(self._group, signal.SIGKILL)
        self._group = None
        self._close()

    def _close(self) -> None:
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = []

    def _read_report(self, end: asyncio.Future[dict[str, Any]]) -> None:
        try:
            read = os.read(self._results, 4096)
        except BlockingIOError:
            return
        if not read:
            asyncio.get_running_loop().remove_reader(self._results)
            _fail(end, "its keeper has ended")
            return
        *lines, self._lines = (self._lines + read).split(b"\n")
        for line in lines:
            report = json.loads(line)
            self._group = report.get("group", self._group)
            if report.get("why") is not None:
                _fail(end, report["why"])
            elif "status" in report and not end.done():
                end.set_result(report)


def _fail(end: asyncio.Future[dict[str, Any]], why: str) -> None:
    if not end.done():
        end.set_exception(Ended(why))

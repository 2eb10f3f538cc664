"""A command as the server sees it: begun in its box, read, and ended with all that it began.

Knows the keeper's pipes; knows no container and no model. What the command writes is data, and
bounded; how it ended comes on a pipe that the command does not have.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses.frozen import dataclass
from trt_responses.tools.python.keeper import members
from trt_responses.tools.python.process import SOURCE, Bounded, Ended, send

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PROGRAMS = (
    *("/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64"),
    *("/usr/libexec", "/usr/share", "/usr/include", "/usr/local/bin", "/usr/local/lib"),
    *("/etc/localtime", "/etc/ld.so.cache", "/etc/alternatives"),
)
"""What a command may read and run besides its directory: the system's programs, no settings."""
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
}
PROCESSES = 64
"""Processes and threads of one command, at once."""
OPEN_FILES = 64
END_S = 10.0
"""In which a keeper ends its tree: it takes some milliseconds."""


@dataclass(frozen=True, slots=True)
class Shell:
    """How commands are run."""

    memory_bytes: int
    """Of a command and all that it begins; and what each process may address."""
    file_bytes: int
    programs: tuple[str, ...] = PROGRAMS
    processes: int = PROCESSES
    at_most_abi: int = 6


class Finished(NamedTuple):
    """What a command gave."""

    stdout: str
    stderr: str
    status: int
    """Negative: the signal that ended it."""
    ended_for: str | None
    """None: it ended of itself. Else `time`, `memory`, or `server`."""


class Command:
    """One command. `kill` it when nobody waits for it any more."""

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
        self._asked = {
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
                [sys.executable, "-I", "-X", "utf8", "-c", BEGIN, str(pipes[0][1])],
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
        """Run it to its end, or to its deadline. Raises `Ended` where it cannot be run."""
        loop = asyncio.get_running_loop()
        end: asyncio.Future[dict[str, Any]] = loop.create_future()
        outputs = Bounded(), Bounded()
        loop.add_reader(self._results, self._hear, end)
        for pipe, output in zip(self._pipes[1:], outputs, strict=True):
            loop.add_reader(pipe, _drain, pipe, output, 1)
        assert self._process.stdin is not None
        sending = asyncio.create_task(send(self._process.stdin, self._asked))
        timed_out = False
        try:
            try:
                async with asyncio.timeout(deadline_s):
                    told = await asyncio.shield(end)
            except TimeoutError:
                timed_out = True
                self.kill_group()
                async with asyncio.timeout(END_S):
                    told = await end
        finally:
            sending.cancel()
            await asyncio.wait((sending,))
            for pipe in self._pipes:
                loop.remove_reader(pipe)
        for pipe, output in zip(self._pipes[1:], outputs, strict=True):
            _drain(pipe, output)
        ended_for = "time" if timed_out else told["ended_for"]
        return Finished(outputs[0].text(), outputs[1].text(), told["status"], ended_for)

    @property
    def keeper(self) -> int:
        """The process that ends it, should the server not."""
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """The numbers of the command's process and of all that it has begun."""
        return [] if self._group is None else [each.pid for each in members(self._group)]

    def kill_group(self) -> None:
        """Have it ended; whoever waits for its end hears of it."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def kill(self) -> None:
        """End it and all that it began. Synchronous and idempotent: nothing is left behind it."""
        self.kill_group()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0 and self._group is not None:
            with suppress(ProcessLookupError):  # somebody has killed the keeper
                os.killpg(self._group, signal.SIGKILL)
        self._group = None
        self._close()

    def _close(self) -> None:
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = []

    def _hear(self, end: asyncio.Future[dict[str, Any]]) -> None:
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
            told = json.loads(line)
            self._group = told.get("group", self._group)
            if told.get("why") is not None:
                _fail(end, told["why"])
            elif "status" in told and not end.done():
                end.set_result(told)


BEGIN = (
    f"import sys; sys.path.insert(0, {str(SOURCE)!r}); "
    "from trt_responses.tools.python.keeper import main; main()"
)


def _fail(end: asyncio.Future[dict[str, Any]], why: str) -> None:
    if not end.done():
        end.set_exception(Ended(why))


def _drain(pipe: int, output: Bounded, at_most: int = 1 << 30) -> None:
    """What has been written by now; the end of a pipe is no news."""
    for _ in range(at_most):
        try:
            read = os.read(pipe, 65536)
        except BlockingIOError:
            return
        if not read:
            asyncio.get_running_loop().remove_reader(pipe)
            return
        output.add(read)

"""The server's side of an interpreter: starts, calls, stops and kills it.

Pipes and signals only: no container and no model. Data from the process is untrusted: lines that
are not an answer to the current call are ignored, and the output is limited.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from trt_responses.children import SOURCE, main_of
from trt_responses.frozen import dataclass
from trt_responses.tasks import beside

START_S = 60.0
"""Timeout until it is sandboxed, which takes a tenth of a second on an idle machine."""
READ_BYTES = 64 * 1024
HEAD_BYTES, TAIL_BYTES = 48 * 1024, 16 * 1024
"""Kept bytes of a call's output, at its beginning and at its end; the rest is dropped."""
ANSWER_BYTES = 4096
"""Maximum length of a line on the answer pipe."""
FLOOD_BYTES = 256 * 1024
"""Maximum bytes on the answer pipe per call, which needs a hundred; a process that writes more is
killed, since reading costs the server."""
SYSTEM_LIBRARIES = ("/usr/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/localtime")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Settings of interpreters."""

    executable: str
    readable: tuple[str, ...]
    memory_bytes: int
    file_bytes: int
    boxed: bool = True
    at_most_abi: int = 6


class Ended(Exception):
    """The process has ended; the message is how."""


class Output(NamedTuple):
    """The output of a call."""

    text: str
    fine: bool


def readable_paths(executable: str) -> tuple[str, ...]:
    """The paths of an interpreter's libraries, which code may read besides its directory."""
    if executable == sys.executable:
        names = ("stdlib", "platstdlib", "purelib", "platlib")
        paths = [sysconfig.get_path(name) for name in names]
        paths.append(str(Path(sys.base_prefix) / "lib"))
    else:
        code = "import sys, sysconfig; print(sys.base_prefix + '/lib', *map(sysconfig.get_path, "
        code += "('stdlib', 'platstdlib', 'purelib', 'platlib')), sep='\\n')"
        finished = subprocess.run(
            [executable, "-I", "-c", code], capture_output=True, text=True, timeout=30, check=True
        )
        paths = finished.stdout.splitlines()
    return tuple(dict.fromkeys([*paths, *SYSTEM_LIBRARIES]))


async def send(pipe: IO[bytes], request: Mapping[str, object]) -> None:
    """Write a line of JSON to a process that may read slowly or have ended."""
    number, left = pipe.fileno(), memoryview(json.dumps(request).encode() + b"\n")
    os.set_blocking(number, False)
    loop = asyncio.get_running_loop()
    with suppress(BrokenPipeError):
        while left:
            try:
                left = left[os.write(number, left) :]
            except BlockingIOError:
                room = asyncio.Event()
                loop.add_writer(number, room.set)
                try:
                    await room.wait()
                finally:
                    loop.remove_writer(number)


class PythonProcess:
    """One interpreter. It is stopped between calls. The caller must `kill` it."""

    def __init__(self, directory: Path, how: Interpreter) -> None:
        self.box: int | None = None
        """The Landlock version of its sandbox, or None."""
        self._results, results = os.pipe()
        self._output, output = os.pipe()
        self._lines = b""
        self._answer_bytes = 0
        """Bytes on the answer pipe in this call."""
        try:
            self._process = subprocess.Popen(
                [
                    *main_of("trt_responses.tools.python.interpreter", how.executable),
                    _arguments(directory, how, results),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=directory,
                env={"HOME": str(directory), "TMPDIR": str(directory), **ENVIRONMENT},
                pass_fds=(results,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._results)
            os.close(self._output)
            raise
        finally:
            os.close(results)
            os.close(output)
        for pipe in (self._results, self._output):
            os.set_blocking(pipe, False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        return [self.pid]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def shut_in(self) -> None:
        """Wait until it is sandboxed. Raises `Ended` with the reason if it cannot be."""
        head = Bounded()
        async with asyncio.timeout(START_S):
            report = await self._answer(lambda report: "box" in report, head)
        if report["why"] is not None:
            raise Ended(str(report["why"]))
        self.box = report["box"]
        self._signal(signal.SIGSTOP)

    async def call(self, code: str) -> Output:
        """Run code to its end. Raises `Ended` with the output if the process ends."""
        number, output = secrets.token_hex(16), Bounded()
        drain(self._output, Bounded())
        self._answer_bytes = 0
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        async with beside(send(self._process.stdin, {"call": number, "code": code})):
            try:
                answer = await self._answer(lambda each: each.get("call") == number, output)
            finally:
                self._signal(signal.SIGSTOP)
        drain(self._output, output)
        return Output(output.text(), bool(answer.get("fine")))

    def kill_group(self) -> None:
        """Kill the process group; the waiter for its answer is notified."""
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill it and its descendants. Synchronous and idempotent."""
        self.kill_group()
        if self._results >= 0:
            for pipe in (self._results, self._output):
                os.close(pipe)
            self._results = self._output = -1
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()

    # --- pipes --------------------------------------------------------------------------------

    async def _answer(
        self, matches: Callable[[dict[str, Any]], bool], output: Bounded
    ) -> dict[str, Any]:
        """The matching line of the answer pipe; reads the output meanwhile."""
        loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def read() -> None:
            lines = self._read_lines()
            if done.done():
                return
            if lines is None:
                done.set_exception(Ended(self._how(output)))
            elif matching := [line for line in lines if matches(line)]:
                done.set_result(matching[0])
            elif self._answer_bytes > FLOOD_BYTES:
                done.set_exception(Ended("The code wrote to the interpreter's own pipe."))

        loop.add_reader(self._results, read)
        loop.add_reader(self._output, drain, self._output, output, 1)
        try:
            answer: dict[str, Any] = await done
            return answer
        finally:
            loop.remove_reader(self._results)
            loop.remove_reader(self._output)

    def _read_lines(self) -> list[dict[str, Any]] | None:
        """The JSON objects on the answer pipe so far; None at its end."""
        try:
            read = os.read(self._results, ANSWER_BYTES)
        except BlockingIOError:
            return []
        if not read:
            return None
        self._answer_bytes += len(read)
        *lines, rest = (self._lines + read).split(b"\n")
        self._lines = rest[-ANSWER_BYTES:]
        values = []
        for line in lines:
            with suppress(ValueError, RecursionError):
                values.append(json.loads(line))
        return [each for each in values if isinstance(each, dict)]

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _how(self, output: Bounded) -> str:
        drain(self._output, output)
        status = self._process.wait()
        how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return f"{output.text()}\nThe interpreter ended {how}.".lstrip()


class Bounded:
    """Keeps the beginning and the end of a text of any length."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        room = max(0, HEAD_BYTES - len(self._head))
        self._head += data[:room]
        self._tail = (self._tail + data[room:])[-TAIL_BYTES:]

    def text(self) -> str:
        left_out = self._size - len(self._head) - len(self._tail)
        head, tail = (bytes(part).decode("utf-8", "replace") for part in (self._head, self._tail))
        if not left_out:
            return bytes(self._head + self._tail).decode("utf-8", "replace")
        note = f"[… {left_out} bytes are left out here: print less, or write to a file. …]"
        return f"{head}\n{note}\n{tail}"


def drain(pipe: int, output: Bounded, at_most: int = 1 << 30) -> None:
    """Read what has been written so far, up to the end of the pipe."""
    for _ in range(at_most):
        try:
            read = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return
        if not read:
            asyncio.get_running_loop().remove_reader(pipe)
            return
        output.add(read)


ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "MPLBACKEND": "agg",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def _arguments(directory: Path, how: Interpreter, results: int) -> str:
    return json.dumps(
        {
            "directory": str(directory),
            "readable": how.readable,
            "memory_bytes": how.memory_bytes,
            "file_bytes": how.file_bytes,
            "boxed": how.boxed,
            "abi": how.at_most_abi,
            "parent": os.getpid(),
            "results": results,
            "source": SOURCE,
        }
    )

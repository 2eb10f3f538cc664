"""An interpreter as the server sees it: begun, called, stopped between calls, and killed.

Knows pipes and signals; knows no container and no model. What is read from the process is data: a
line that is no answer to the present call is passed over, and the output is bounded.
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
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from trt_responses.frozen import dataclass
from trt_responses.tasks import beside

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SOURCE = Path(__file__).parents[3]
"""Where the interpreter finds this package, before it is shut in."""
START_S = 60.0
"""Until it has been shut in; it takes a tenth of a second where the machine is not busy."""
READ_BYTES = 64 * 1024
HEAD_BYTES, TAIL_BYTES = 48 * 1024, 16 * 1024
"""Of what a call writes: its beginning and its end; the rest is read and dropped."""
ANSWER_BYTES = 4096
"""Of a line of the pipe of answers."""
FLOOD_BYTES = 256 * 1024
"""Of the pipe of answers in one call, which takes a hundred: who writes more is ended, for reading
it is work of the server's."""
OPTIONS = ("-I", "-X", "utf8")
"""Nothing of the server's environment and directory; texts are UTF-8."""
SYSTEM_LIBRARIES = ("/usr/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/localtime")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How interpreters are begun."""

    executable: str
    readable: tuple[str, ...]
    memory_bytes: int
    file_bytes: int
    boxed: bool = True
    at_most_abi: int = 6


class Ended(Exception):
    """The process has ended; the message says how."""


class Output(NamedTuple):
    """What a call gave."""

    text: str
    fine: bool


def readable_paths(executable: str) -> tuple[str, ...]:
    """The places of an interpreter's own libraries: what code may read besides its directory."""
    if executable == sys.executable:
        names = ("stdlib", "platstdlib", "purelib", "platlib")
        found = [sysconfig.get_path(name) for name in names]
        found.append(str(Path(sys.base_prefix) / "lib"))
    else:
        asked = "import sys, sysconfig; print(sys.base_prefix + '/lib', *map(sysconfig.get_path, "
        asked += "('stdlib', 'platstdlib', 'purelib', 'platlib')), sep='\\n')"
        told = subprocess.run(
            [executable, "-I", "-c", asked], capture_output=True, text=True, timeout=30, check=True
        )
        found = told.stdout.splitlines()
    return tuple(dict.fromkeys([*found, *SYSTEM_LIBRARIES]))


async def send(pipe: IO[bytes], asked: Mapping[str, object]) -> None:
    """Write a line of JSON to a process that reads when it likes, or has ended."""
    number, left = pipe.fileno(), memoryview(json.dumps(asked).encode() + b"\n")
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
    """One interpreter. `kill` it; until then it is stopped whenever it is not called."""

    def __init__(self, directory: Path, how: Interpreter) -> None:
        self.box: int | None = None
        """The version of Landlock that holds it, once it has been shut in."""
        self._results, results = os.pipe()
        self._output, output = os.pipe()
        self._lines = b""
        self._heard_bytes = 0
        """From the pipe of answers, in this call."""
        try:
            self._process = subprocess.Popen(
                [
                    how.executable,
                    "-I",
                    "-X",
                    "utf8",
                    "-c",
                    _begin(),
                    _asked(directory, how, results),
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
        """Wait until it says that it is in its box. Raises `Ended` with the reason why it is
        not."""
        head = Bounded()
        async with asyncio.timeout(START_S):
            told = await self._answer(lambda told: "box" in told, head)
        if told["why"] is not None:
            raise Ended(str(told["why"]))
        self.box = told["box"]
        self._signal(signal.SIGSTOP)

    async def call(self, code: str) -> Output:
        """Run code to its end. Raises `Ended` with what it wrote when the process ends instead."""
        number, output = secrets.token_hex(16), Bounded()
        self._drain(Bounded())
        self._heard_bytes = 0
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        async with beside(send(self._process.stdin, {"call": number, "code": code})):
            try:
                told = await self._answer(lambda told: told.get("call") == number, output)
            finally:
                self._signal(signal.SIGSTOP)
        self._drain(output)
        return Output(output.text(), bool(told.get("fine")))

    def kill_group(self) -> None:
        """End what runs; whoever waits for its answer hears that it has ended."""
        self._signal(signal.SIGKILL)

    def kill(self) -> None:
        """End it and all that it began. Synchronous and idempotent."""
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
        self, wanted: Callable[[dict[str, Any]], bool], output: Bounded
    ) -> dict[str, Any]:
        """The line of the pipe of answers that is wanted; meanwhile the output is read."""
        loop, found = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def hear() -> None:
            lines = self._read_lines()
            if found.done():
                return
            if lines is None:
                found.set_exception(Ended(self._how(output)))
            elif fitting := [told for told in lines if wanted(told)]:
                found.set_result(fitting[0])
            elif self._heard_bytes > FLOOD_BYTES:
                found.set_exception(Ended("The code wrote to the interpreter's own pipe."))

        loop.add_reader(self._results, hear)
        loop.add_reader(self._output, lambda: self._drain(output, at_most=1))
        try:
            answer: dict[str, Any] = await found
            return answer
        finally:
            loop.remove_reader(self._results)
            loop.remove_reader(self._output)

    def _read_lines(self) -> list[dict[str, Any]] | None:
        """The lines that have come, as far as they are objects; None at the end."""
        try:
            read = os.read(self._results, ANSWER_BYTES)
        except BlockingIOError:
            return []
        if not read:
            return None
        self._heard_bytes += len(read)
        *lines, rest = (self._lines + read).split(b"\n")
        self._lines = rest[-ANSWER_BYTES:]
        told = []
        for line in lines:
            with suppress(ValueError):
                told.append(json.loads(line))
        return [each for each in told if isinstance(each, dict)]

    def _drain(self, output: Bounded, *, at_most: int = 1 << 30) -> None:
        """What has been written by now."""
        for _ in range(at_most):
            try:
                read = os.read(self._output, READ_BYTES)
            except BlockingIOError:
                return
            if not read:
                return
            output.add(read)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _how(self, output: Bounded) -> str:
        self._drain(output)
        status = self._process.wait()
        how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return f"{output.text()}\nThe interpreter ended {how}.".lstrip()


class Bounded:
    """The beginning and the end of a text of any length."""

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


ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


def _begin() -> str:
    return (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r}); "
        "from trt_responses.tools.python.interpreter import main; main()"
    )


def _asked(directory: Path, how: Interpreter, results: int) -> str:
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
            "source": str(SOURCE),
        }
    )

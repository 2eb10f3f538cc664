"""Keeps the engine's process alive: starts it, watches it, and restarts it when it dies.

A silent process is killed, since a frozen one would block all streams. Processes only: no requests
and no engine.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trt_responses.errors import StartupError

logger = logging.getLogger(__name__)

LOOKS = 4
"""Checks per silence interval, so that time in which this process was itself suspended does not
count."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts and limits for the engine's process."""

    start_s: float = 1800.0
    """Timeout of loading."""
    silence_s: float = 20.0
    """Seconds without a heartbeat after which the process is killed."""
    restarts: int = 5
    """Maximum restarts in a row."""
    steady_s: float = 60.0
    """Seconds of service after which earlier deaths do not count."""
    first_backoff_s: float = 0.2
    most_backoff_s: float = 30.0


class EngineProcess:
    """`command` runs a program that hosts an engine (`engines/remote/child.py`); `given`: the data
    from which that program creates it."""

    def __init__(
        self,
        command: Sequence[str],
        given: Mapping[str, object],
        patience: Patience | None = None,
    ) -> None:
        self.path = ""
        """The path of the engine's socket, set by `start`."""
        self.alive = True
        self.pid: int | None = None
        self.fault: str | None = None
        """Why the last process ended, until the next one is up."""
        self._command = command
        self._given = given
        self._patience = patience or Patience()
        self._failures = 0
        self._folder = ""
        self._listening: socket.socket | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._last_words = ""
        self._fell = asyncio.Event()
        self._lost = asyncio.Event()

    async def start(self) -> None:
        """Start the process and wait until it serves. Raises a `StartupError` with the root cause
        as one sentence."""
        self._folder = tempfile.mkdtemp(prefix="trt-")
        self.path = str(Path(self._folder) / "engine.sock")
        self._listening = socket.socket(socket.AF_UNIX)
        try:
            self._listening.bind(self.path)
            self._listening.listen()
            await self._begin()
        except OSError as error:
            await self.stop(0)
            raise StartupError(_start_error(error)) from None
        except BaseException:
            await self.stop(0)
            raise
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self, deadline_s: float) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        await self._end(deadline_s)
        if self._listening is not None:
            self._listening.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def restart(self, why: str) -> None:
        """Kill a process whose engine is lost although it sends heartbeats; it is restarted unless
        it died too often."""
        self._last_words = why
        _kill(self._process)

    async def why(self, deadline_s: float) -> str:
        """The reason of a death, which may still be unnoticed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._fell.wait()
        return self.fault or "The engine's process has closed the connection."

    async def lost(self) -> str:
        """Wait until the process is no longer restarted. Returns the reason."""
        await self._lost.wait()
        return self.fault or "the engine reported no reason"

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while self.alive:
            ready_s = math.inf
            try:
                if self._process is None:
                    await self._begin()
                ready_s = loop.time()
                fault = await self._ended()
            except (StartupError, OSError) as error:
                await self._end(0)
                fault = str(error)
                if isinstance(error, OSError):  # out of descriptors or memory: may be temporary
                    fault = _start_error(error)
            served_s = loop.time() - ready_s
            self._failures = 1 if served_s >= self._patience.steady_s else self._failures + 1
            self.alive = self._failures <= self._patience.restarts
            self.fault = fault
            self._fell.set()
            what = "restarting the engine's process" if self.alive else "giving up on the engine"
            logger.warning("%s: %s Failure %d in a row.", what, fault, self._failures)
            if self.alive:
                await asyncio.sleep(self._backoff_s())
        self._lost.set()

    def _backoff_s(self) -> float:
        patience = self._patience
        doubled = patience.first_backoff_s * 2.0 ** min(self._failures - 1, 20)
        return min(patience.most_backoff_s, doubled)

    async def _begin(self) -> None:
        """Start a process and wait until it serves. Raises a `StartupError` with the process's own
        reason."""
        assert self._listening is not None
        self._last_words = ""
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(self._listening.fileno(),),
            start_new_session=True,  # Ctrl-C is for the parent, which drains first
        )
        self.pid = process.pid
        first = {"parent": os.getpid(), "listening": self._listening.fileno(), "given": self._given}
        assert process.stdin is not None
        with suppress(ConnectionError):
            process.stdin.write(json.dumps(first).encode() + b"\n")
        try:
            async with asyncio.timeout(self._patience.start_s):
                message = await self._read_line()
        except TimeoutError:
            await self._end(0)
            raise StartupError(
                f"The engine did not load within {self._patience.start_s:g} s."
            ) from None
        if message is None:
            how = await self._how()
            await self._end(0)
            raise StartupError(f"Its process ended while loading ({how}).")
        if "ready" not in message:
            await self._end(0)
            raise StartupError(message.get("failed", "Its process failed without a reason."))
        self.fault = None
        self._fell.clear()

    async def _read_line(self) -> dict[str, str] | None:
        """The next line of the process as JSON; None at its end, which may cut a line."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
            message: dict[str, str] | None = json.loads(line) if line.endswith(b"\n") else None
        except ValueError as error:  # a line that is too long or not JSON
            raise StartupError(f"The engine's process wrote an invalid line: {error}.") from None
        return message

    async def _ended(self) -> str:
        """Watch the process until it ends. Returns the cause."""
        missed = 0
        while True:
            try:
                async with asyncio.timeout(self._patience.silence_s / LOOKS):
                    message = await self._read_line()
            except TimeoutError:
                missed += 1
                if missed == LOOKS:
                    self._last_words = f"no heartbeat for {self._patience.silence_s:g} s"
                    _kill(self._process)
                continue
            if message is None:
                break
            missed = 0
            self._last_words = message.get("lost", self._last_words)
        how = await self._how()
        await self._end(0)
        return f"The engine's process ended: {self._last_words or how}."

    async def _how(self) -> str:
        assert self._process is not None
        code = await self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    async def _end(self, deadline_s: float) -> None:
        """Request the process to end; past the deadline, kill it."""
        process, self._process, self.pid = self._process, None, None
        if process is None:
            return
        if process.stdin is not None:
            with suppress(ConnectionError, RuntimeError):
                process.stdin.write(f"{deadline_s}\n".encode())
                process.stdin.close()
        ended = asyncio.ensure_future(process.wait())
        try:  # before Python 3.11.3, `asyncio.timeout` raises in a task that was cancelled
            await asyncio.wait((ended,), timeout=deadline_s)
        finally:
            _kill(process)
            await ended


def _start_error(error: OSError) -> str:
    return f"The engine's process cannot be started: {error}."


def _kill(process: asyncio.subprocess.Process | None) -> None:
    """Kill a process and its whole session: a stalled rank would outlive it and keep GPU memory."""
    if process is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

"""An MCP server as a child process: lines to it, lines from it, and an end that leaves nothing.

Knows no SDK and no message. A child has a process group of its own, which is ended as a whole.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from trt_responses.children import dying_with_us
from trt_responses.tasks import give_way

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from trt_responses.tools.mcp.limits import Meter
    from trt_responses.tools.mcp.servers import Local

logger = logging.getLogger(__name__)

GRACE_S = 1.0
"""For a child to end by itself when its pipe is closed, and again when it is asked to."""
POLL_S = 0.02
PIECE = 64 * 1024
LINES, LINE = 10, 500
"""The most lines of a piece of its standard error that are logged, and the bytes of each."""
LOG_S = 0.05
"""Between two pieces of standard error: a child that floods it waits."""


class ServerProcess:
    """A child that runs. `stop` it, whatever came of it."""

    def __init__(self, child: asyncio.subprocess.Process, label: str) -> None:
        self._child = child
        self._logging = asyncio.create_task(self._log(label))

    @classmethod
    async def begin(cls, at: Local, environment: Mapping[str, str]) -> ServerProcess:
        """Raises an `OSError` for a program that is not found."""
        told = {**environment, **at.env}
        path = os.path.join(at.cwd or "", at.command) if os.sep in at.command else at.command
        if shutil.which(path, path=told.get("PATH", os.defpath)) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        child = await asyncio.create_subprocess_exec(
            *dying_with_us((at.command, *at.args)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=told,
            cwd=at.cwd,
            start_new_session=True,
        )
        return cls(child, at.label)

    async def lines(self, meter: Meter) -> AsyncIterator[bytes]:
        """What it writes, a line at a time; empty ones are left out. Raises a `Fault` for more
        than is read."""
        assert self._child.stdout is not None
        rest = b""
        while piece := await self._child.stdout.read(PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            meter.take(len(piece), len(lines))
            for line in lines:
                if line.strip():
                    yield line
            await give_way()  # others have their turn

    async def write(self, line: bytes) -> None:
        """A child that is gone is told nothing."""
        assert self._child.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self._child.stdin.write(line + b"\n")
            await self._child.stdin.drain()

    async def stop(self, *, at_once: bool) -> None:
        """Close its pipe, ask it to end, end it; all of its group."""
        child = self._child
        if child.stdin is not None:
            child.stdin.close()
        signals = (signal.SIGKILL,) if at_once else (None, signal.SIGTERM, signal.SIGKILL)
        for sign in signals:
            if sign is not None:
                self._signal(sign)
            if await self._gone():
                break
        self._signal(signal.SIGKILL)  # children of its own
        await asyncio.wait((self._logging,), timeout=GRACE_S)
        self._logging.cancel()
        child._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way to close it

    async def _log(self, label: str) -> None:
        """Log what it writes to its standard error, some lines of each piece."""
        assert self._child.stderr is not None
        while piece := await self._child.stderr.read(PIECE):
            lines = [line for line in piece.splitlines() if line.strip()]
            for line in lines[:LINES]:
                text = line[:LINE].decode("utf-8", "replace")
                shown = "".join(one if one.isprintable() else " " for one in text)
                logger.info("MCP server %s: %s", label, shown)
            if (more := len(lines) - LINES) > 0:
                logger.info("MCP server %s: %d more lines are not logged", label, more)
            await asyncio.sleep(LOG_S)

    def _signal(self, sign: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, sign)

    async def _gone(self) -> bool:
        """Whether it ends within its grace. `wait` would wait for whoever holds its pipes, too."""
        for _ in range(int(GRACE_S / POLL_S)):
            if self._child.returncode is not None:
                return True
            await asyncio.sleep(POLL_S)
        return False

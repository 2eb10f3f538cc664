"""An MCP server as a child process: lines to it, lines from it, and a complete stop.

A child has its own process group, which is killed as a whole. No SDK and no messages here.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

from trt_responses.children import dying_with_us
from trt_responses.tasks import give_way
from trt_responses.tools.mcp.limits import Meter
from trt_responses.tools.mcp.servers import Local

logger = logging.getLogger(__name__)

GRACE_S = 1.0
"""Time for a child to exit after its pipe is closed, and again after SIGTERM."""
POLL_S = 0.02
PIECE = 64 * 1024
LINES, LINE = 10, 500
"""Logged lines per piece of standard error, and bytes per line."""
LOG_S = 0.05
"""Pause between two pieces of standard error, against floods."""


class ServerProcess:
    """A running child. The caller must `stop` it in any case."""

    def __init__(self, child: asyncio.subprocess.Process, label: str) -> None:
        self._child = child
        self._logging = asyncio.create_task(self._log(label))

    @classmethod
    async def begin(cls, at: Local, environment: Mapping[str, str]) -> ServerProcess:
        """Start the child. Raises an `OSError` if the program is missing."""
        env = {**environment, **at.env}
        path = os.path.join(at.cwd or "", at.command) if os.sep in at.command else at.command
        if shutil.which(path, path=env.get("PATH", os.defpath)) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        child = await asyncio.create_subprocess_exec(
            *dying_with_us((at.command, *at.args)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=at.cwd,
            start_new_session=True,
        )
        return cls(child, at.label)

    async def lines(self, meter: Meter) -> AsyncIterator[bytes]:
        """The non-empty lines that it writes. Raises a `Fault` above the limits."""
        assert self._child.stdout is not None
        rest = b""
        while piece := await self._child.stdout.read(PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            meter.take(len(piece), len(lines))
            for line in lines:
                if line.strip():
                    yield line
            await give_way()  # let other tasks run

    async def write(self, line: bytes) -> None:
        """Write a line; ignored if the child has exited."""
        assert self._child.stdin is not None
        with suppress(ConnectionError, RuntimeError):
            self._child.stdin.write(line + b"\n")
            await self._child.stdin.drain()

    async def stop(self, *, at_once: bool) -> None:
        """Close its pipe, then terminate and kill its whole group."""
        child = self._child
        if child.stdin is not None:
            child.stdin.close()
        signals = (signal.SIGKILL,) if at_once else (None, signal.SIGTERM, signal.SIGKILL)
        for sign in signals:
            if sign is not None:
                self._signal(sign)
            if await self._gone():
                break
        self._signal(signal.SIGKILL)  # its own children
        await asyncio.wait((self._logging,), timeout=GRACE_S)
        self._logging.cancel()
        child._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way to close it

    async def _log(self, label: str) -> None:
        """Log its standard error, a limited number of lines per piece."""
        assert self._child.stderr is not None
        while piece := await self._child.stderr.read(PIECE):
            lines = [line for line in piece.splitlines() if line.strip()]
            for line in lines[:LINES]:
                text = line[:LINE].decode("utf-8", "replace")
                shown = "".join(one if one.isprintable() else " " for one in text)
                logger.info("MCP server %s: %s", label, shown)
            if (more := len(lines) - LINES) > 0:
                logger.info("MCP server %s: dropped %d more lines of its log", label, more)
            await asyncio.sleep(LOG_S)

    def _signal(self, sign: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, sign)

    async def _gone(self) -> bool:
        """Whether it exits within `GRACE_S`. `wait` would also wait for other holders of its
        pipes."""
        for _ in range(int(GRACE_S / POLL_S)):
            if self._child.returncode is not None:
                return True
            await asyncio.sleep(POLL_S)
        return False

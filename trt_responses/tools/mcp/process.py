"""An MCP server as a child process: lines to it, lines from it, and an end that leaves nothing.

Knows no SDK and no message. A child has a process group of its own, which is ended as a whole.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from trt_responses.tools.mcp.limits import Meter
    from trt_responses.tools.mcp.servers import Local

GRACE_S = 1.0
"""For a child to end by itself when its pipe is closed, and again when it is asked to."""
POLL_S = 0.02
PIECE = 64 * 1024


class ServerProcess:
    """A child that runs. `stop` it, whatever came of it."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    @classmethod
    async def begin(cls, at: Local, environment: Mapping[str, str]) -> ServerProcess:
        return cls(
            await asyncio.create_subprocess_exec(
                at.command,
                *at.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**environment, **at.env},
                cwd=at.cwd,
                start_new_session=True,
            )
        )

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
            await asyncio.sleep(0)  # others have their turn

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
        child._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way to close it

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

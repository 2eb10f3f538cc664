"""A terminal of tmux's, to type to a program in. Its tests are skipped where there is none."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux on the path")


class Screen:
    """A session of a tmux server of its own."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def run(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("tmux", "-S", str(self._socket), "-f", "/dev/null", *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        return out.decode()

    async def type(self, text: str, *keys: str) -> None:
        """A text as it stands, then keys by tmux's names."""
        if text:
            await self.run("send-keys", "-l", text)
        if keys:
            await self.run("send-keys", *keys)

    async def line(self, text: str) -> None:
        await self.type(text, "Enter")

    async def shows(self, what: str | Callable[[str], bool], *, escapes: bool = False) -> str:
        """The screen, as soon as the text or the claim is true of it."""
        claim = what if callable(what) else lambda shown: what in shown
        shown = ""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not claim(shown):  # each look is a process, and rests the processor
                    shown = await self.run("capture-pane", "-p", *(["-e"] if escapes else []))
        except TimeoutError:
            pytest.fail(f"it never showed {what!r}, but:\n{shown}")
        return shown


@asynccontextmanager
async def terminal(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[Screen]:
    """The command in a terminal of 100 columns and 40 lines."""
    screen = Screen(folder / "tmux")
    given = [f"{name}={value}" for name, value in environment.items()]
    line = shlex.join(["env", *given, *command])
    await screen.run("new-session", "-d", "-x", "100", "-y", "40", f"{line}; echo ended $?; cat")
    try:
        yield screen
    finally:
        await screen.run("kill-server")

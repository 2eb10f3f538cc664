"""The parent's side of a child process: starts it, reads its output and ends it.

Processes and their output only: no requests.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import signal
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from trt_responses.engines.http_server import Address, query
from trt_responses.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.engines.llamacpp.child import Settings

logger = logging.getLogger(__name__)

CHILD = Path(__file__).with_name("child.py")
KEPT_LINES = 200
ERROR_LINE = re.compile(r"^[\d.]+ E +(?:\S+ +)?\S+: (.*)$")


@dataclass(frozen=True, slots=True)
class Model:
    """The model for a child to load, and the size of its batch."""

    path: Path
    context_tokens: int
    slots: int
    threads: int
    adapters: tuple[Path, ...] = ()
    files: Sequence[int] = ()
    """Files that a child inherits, to save the states of slots to."""


class Child:
    """One running child, created by `spawn`."""

    def __init__(self, process: asyncio.subprocess.Process, settings: Settings) -> None:
        self.pid = process.pid
        self.host = ""
        self.port = 0
        self.api_key = settings["api_key"]
        self.prefix = settings["api_prefix"]
        self.path = f"{self.prefix}/completion"
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._process = process
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def spawn(cls, model: Model, deadline_s: float) -> Child:
        """Start a child and wait until it accepts requests."""
        settings: Settings = {
            "parent": os.getpid(),
            "model_path": str(model.path),
            "api_key": secrets.token_hex(32),
            "api_prefix": f"/{secrets.token_hex(16)}",
            "context_tokens": model.context_tokens,
            "slots": model.slots,
            "threads": model.threads,
            "adapters": [str(path) for path in model.adapters],
            "saves": bool(model.files),
        }
        child = cls(await _process(model.files), settings)
        try:
            await child._greet(settings, model.path, deadline_s)
        except BaseException:
            await child.end(0)
            raise
        return child

    async def ended(self) -> str:
        """Wait for the child's end. Returns its cause."""
        code = await self._process.wait()
        await asyncio.gather(self._listener, return_exceptions=True)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        words = next((line for line in self.lines if "GGML_ASSERT" in line), None)
        return f"{how}; {words}" if words else how

    async def ends_within(self, seconds: float) -> bool:
        """Whether the child ends by itself within this time."""
        # before Python 3.11.3, `asyncio.timeout` raises in a task that was cancelled
        ended = asyncio.ensure_future(self._process.wait())
        await asyncio.wait((ended,), timeout=seconds)
        return ended.done()

    async def post(self, path: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """The reply to a small request of the server's own, or the child's refusal. Raises an
        `OSError` if there is neither."""
        address, key = Address(self.host, self.port), f"Authorization: Bearer {self.api_key}"
        content = orjson.dumps(fields)
        reply = await query(address, "POST", f"{self.prefix}{path}", None, content, (key,))
        if not reply.fields:
            raise ConnectionError("The engine broke the connection.")
        return dict(reply.fields)

    async def is_frozen(self, deadline_s: float) -> bool:
        """Whether the child neither answers nor uses CPU time within the deadline. A child in a
        long step answers from another thread, or at least uses CPU time."""
        before = self._ticks()
        try:
            async with asyncio.timeout(deadline_s):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                try:
                    writer.write(b"GET /health HTTP/1.0\r\n\r\n")
                    await reader.read(1)
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return self._ticks() == before
        return False

    def _ticks(self) -> Sequence[str]:
        """The child's CPU time so far; empty if the system does not show it."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        except OSError:
            return ()

    def kill(self) -> None:
        """Kill the child at once."""
        if self._process.returncode is None:
            self._process.kill()

    async def end(self, deadline_s: float) -> None:
        """End the child by closing its input; past the deadline, kill it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if not await self.ends_within(deadline_s):
            self.kill()
            await self._process.wait()
        await asyncio.gather(self._listener, return_exceptions=True)

    async def _greet(self, settings: Settings, path: Path, deadline_s: float) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(settings).encode() + b"\n")
        try:
            async with asyncio.timeout(deadline_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise StartupError(f"The engine did not load {path} within {deadline_s:g} s.") from None
        if not line:
            how = await self.ended()
            raise StartupError(f"The engine cannot load {path} ({how}): {self._complaint()}")
        address = urlsplit(json.loads(line)["address"])
        self.host, self.port = address.hostname or "", address.port or 0

    async def _listen(self) -> None:
        """Read the child's output, since a full pipe would block it."""
        assert self._process.stderr is not None
        rest = b""
        while data := await self._process.stderr.read(65_536):
            *lines, rest = (rest + data)[-65_536:].split(b"\n")
            for line in lines:
                self._keep_line(line)
        self._keep_line(rest)

    def _keep_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text:
            self.lines.append(text)
            logger.debug("llama.cpp: %s", text)

    def _complaint(self) -> str:
        """The output line with the cause of the child's death: a failed assertion, else the first
        error, else the last line."""
        asserted = (line for line in self.lines if "GGML_ASSERT" in line)
        errors = (match[1] for line in self.lines if (match := ERROR_LINE.match(line)))
        last = self.lines[-1] if self.lines else "no output"
        return next(asserted, None) or next(errors, None) or last


async def _process(files: Sequence[int]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(CHILD)),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            pass_fds=tuple(files),
            start_new_session=True,  # Ctrl-C is for the parent, which drains first
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},  # else an abort starts a debugger
        )
    except OSError as error:
        raise StartupError(f"The engine's process cannot be started: {error.strerror}.") from None


def check_file(path: Path) -> None:
    """Check the model file without a child. Raises a `StartupError`."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise StartupError(f"The engine cannot read {path}: {error.strerror}.") from None
    if magic != b"GGUF":
        raise StartupError(f"The engine cannot load {path}: it is not a GGUF file.")

"""The server under proof: `trt-responses serve` as a child with keys and a history of its own, and
what the kernel says of its processes."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from trt_responses.children import dying_with_us
from trt_responses.prove.claims import Failed
from trt_responses.prove.client import GONE, Client
from trt_responses.settings import PREFIX

LOOK_S = 0.1
READY = re.compile(r"http://\S+:(\d+) is ready")
KEPT = ("TRTLLM_PYTHON", "CONTEXT_TOKENS", "SLOTS", "THREADS", "ENGINE_PROCESS", "MAX_RUNNING")
"""The settings of the environment that the server keeps; all others have their defaults."""
FIXED = {"MODEL": "*", "LINGER_S": "1", "DRAIN_S": "120", "LOG_LEVEL": "warning"}


class Server:
    """One server process, from its start to its end."""

    def __init__(self, engine: str, engines_dir: Path, folder: Path, stall_s: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log, self._out = folder / "log", folder / "out"
        self.secrets = tuple(secrets.token_urlsafe(24) for _ in range(2))
        own = {"API_KEYS": f"prove:{self.secrets[0]}", "ADMIN_KEY": self.secrets[1]}
        settings = {**FIXED, **own, "STALL_S": f"{stall_s:g}", "DATA_DIR": str(folder / "data")}
        command = [sys.executable, "-m", "trt_responses", "serve", "--port", "0"]
        command += ["--engine", engine, "--engines-dir", str(engines_dir)]
        with self._log.open("ab") as log, self._out.open("wb") as out:
            self._process = subprocess.Popen(
                dying_with_us(command), env=environment(settings), stdout=out, stderr=log
            )
        self.pid = self._process.pid
        self.client = Client(0, *self.secrets)

    def wait_ready(self, limit_s: float) -> None:
        """Wait until it is ready. Raises a `Failed` with its last line if it ends."""
        until(self._has_answer, limit_s, "the server was not ready")
        found = READY.match(self._out.read_text("utf-8"))
        if found is None:
            lines = self._log.read_text("utf-8", "replace").strip().splitlines()
            raise Failed(f"the server ended at its start: {lines[-1] if lines else 'no log'}")
        self.client = Client(int(found[1]), *self.secrets)

    def worker(self) -> int | None:
        """The process that has the model, the largest one; None if that is the server itself."""
        return max(below(self.pid), key=resident_mib, default=None)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def terminate(self) -> None:
        """Send a SIGTERM: the server drains."""
        self._process.send_signal(signal.SIGTERM)

    def end(self, limit_s: float = 30.0) -> int | None:
        """Wait until it has ended, and return its status; None if it had to be killed."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None

    def close(self) -> None:
        if not self.has_ended():
            self._process.send_signal(signal.SIGINT)  # no linger
            self.end()

    def _has_answer(self) -> bool:
        return self.has_ended() or READY.match(self._out.read_text("utf-8")) is not None


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: this process's, with these settings and few of its own."""
    kept = tuple(PREFIX + name for name in KEPT)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX) or k in kept}
    return inherited | {PREFIX + name: value for name, value in settings.items()}


def until(claim: Callable[[], bool], limit_s: float, sentence: str) -> float:
    """Wait until the claim holds, and return the seconds. Raises a `Failed` after the limit."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        try:
            if claim():
                return time.monotonic() - began
        except GONE:
            pass
        time.sleep(LOOK_S)
    raise Failed(f"{sentence} within {limit_s:.0f} s")


def below(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    for file in Path("/proc").glob(f"{pid}/task/*/children"):
        for child in map(int, _text(file).split()):
            found += [child, *below(child)]
    return found


def resident_mib(pid: int) -> float:
    """The memory of a process; 0 if it has ended."""
    fields = _text(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if fields else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""

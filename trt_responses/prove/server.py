"""The server under proof: `trt-responses serve` as a child, with keys and a history of its own."""

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
from trt_responses.prove.processes import below, largest
from trt_responses.settings import PREFIX

LOOK_S = 0.1
READY = re.compile(r"http://\S+:(\d+) is ready")
KEPT = ("TRTLLM_PYTHON", "CONTEXT_TOKENS", "SLOTS", "THREADS", "ENGINE_PROCESS", "MAX_RUNNING")
"""The settings of the environment that the server keeps; all others have their defaults."""


class Server:
    """One server process, from its start to its end."""

    def __init__(self, engine: str, engines_dir: Path, folder: Path, stall_s: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log, self._out = folder / "log", folder / "out"
        key, admin_key = (secrets.token_urlsafe(24) for _ in range(2))
        self.secrets = (key, admin_key)
        settings = {
            "API_KEYS": f"prove:{key}",
            "ADMIN_KEY": admin_key,
            "DATA_DIR": str(folder / "data"),
            "MODEL_ALIASES": "*",
            "STALL_S": f"{stall_s:g}",
            "ENGINE_SILENCE_S": f"{stall_s:g}",
            "LINGER_S": "1",
            "DRAIN_S": "120",
            "LOG_LEVEL": "warning",
        }
        command = [sys.executable, "-m", "trt_responses", "serve", "--port", "0"]
        command += ["--engine", engine, "--engines-dir", str(engines_dir)]
        with self._log.open("ab") as log, self._out.open("wb") as out:
            self._process = subprocess.Popen(
                dying_with_us(command), env=environment(settings), stdout=out, stderr=log
            )
        self.client = Client(0, key, admin_key)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_ready(self, limit_s: float) -> float:
        """Wait until it is ready, and return the seconds since the call."""
        seconds = until(self._has_answer, limit_s, "the server was not ready")
        found = READY.match(self._out.read_text("utf-8"))
        if found is None:
            raise Failed(f"the server ended at its start: {self._last_line()}")
        self.client = Client(int(found[1]), self.client.key, self.client.admin_key)
        return seconds

    def worker(self) -> int | None:
        """The process that has the model; None if that is the server itself."""
        return largest(below(self.pid))

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def terminate(self) -> None:
        """Send a SIGTERM: the server drains."""
        self._process.send_signal(signal.SIGTERM)

    def end(self, limit_s: float = 30.0) -> int | None:
        """Wait until it has ended, and kill it after the limit. Returns its status; None if it was
        killed."""
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None

    def stop(self) -> None:
        if not self.has_ended():
            self._process.send_signal(signal.SIGINT)  # no linger
            self.end()

    def _has_answer(self) -> bool:
        return self.has_ended() or READY.match(self._out.read_text("utf-8")) is not None

    def _last_line(self) -> str:
        lines = self._log.read_text("utf-8", "replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "no log")


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: this process's, with these settings and few of its own."""
    kept = tuple(PREFIX + name for name in KEPT)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX) or k in kept}
    return inherited | {PREFIX + name: value for name, value in settings.items()}


def until(claim: Callable[[], bool], limit_s: float, sentence: str) -> float:
    """Wait until the claim holds, and return the seconds. Raises a `Failed` after the limit."""
    began = time.monotonic()
    while True:
        try:
            if claim():
                return time.monotonic() - began
        except GONE:
            pass
        if time.monotonic() - began > limit_s:
            raise Failed(f"{sentence} within {limit_s:.0f} s")
        time.sleep(LOOK_S)

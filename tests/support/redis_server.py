"""A real redis-server of the test run's own, on a free port; without one, tests say so and skip."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MISSING = "no redis-server on this machine: install it from the distribution"
ATTEMPTS = 5


class RedisServer:
    """Keeps nothing on the disk. It can be stopped, killed and started again on its port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """On the port it had; at first on a free one, which somebody may take meanwhile."""
        for _ in range(ATTEMPTS):
            self.port = self.port or free_port()
            if self._started():
                return
            self.port = 0
        raise AssertionError("redis-server did not start")

    def _started(self) -> bool:
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self._folder,
            "save": "",
            "hz": 100,
            "repl-diskless-sync-delay": 0,
        }
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen(
            ["redis-server", *words, "--appendonly", "no"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:  # it ends when the server does
            if "Ready to accept connections" in line:
                return True
        self.kill()
        return False

    def kill(self) -> None:
        """As a machine that is gone: every connection is refused from now on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """As a machine that hangs: it accepts connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


@contextmanager
def running(folder: Path) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip(MISSING)
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])

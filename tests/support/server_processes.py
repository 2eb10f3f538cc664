"""One server after another on the same port and history, each a process that is killed."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300
"""Longer than any wait here takes."""


class Servers:
    """One server at a time, and the death of it."""

    def __init__(self, place: Path | str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.dying_server", str(place)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.port = int(self.heard("port"))
        self._pid = 0

    def start(self, plan: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(plan + "\n")
        self._pid = int(self.heard("up"))

    def heard(self, word: str) -> str:
        """What the next line says, which begins with the word."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().split()
        assert line[:1] == [word], line
        return line[1]

    def kill(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            self._pid = 0

    def close(self) -> None:
        self.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process.stdout.close()


def asked(port: int, method: str, path: str, body: Json | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        headers = {"content-type": "application/json"}
        connection.request(method, path, orjson.dumps(body) if body else None, headers)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()

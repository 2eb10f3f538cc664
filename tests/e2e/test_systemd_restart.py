"""A restart of one server under systemd, which a test plays: the socket stays, and nobody is
refused."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

TAKEN = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&0 0</dev/null'
"""systemd's part: the socket comes as the third descriptor, to exactly this process."""
PROBE = b"GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


class Systemd:
    """Holds the socket, starts the service, and hears its news."""

    def __init__(self, engines_dir: Path, folder: Path) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = self.listening.getsockname()[1]
        self._news = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._news.bind(str(folder / "notify"))
        self._news.setblocking(False)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRT_RESPONSES_")}
        self._environment = inherited | {
            "NOTIFY_SOCKET": str(folder / "notify"),
            "TRT_RESPONSES_STORE": "memory://",
            "TRT_RESPONSES_LINGER_S": "0",
            "TRT_RESPONSES_ENGINES_DIR": str(engines_dir),
        }

    async def start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", TAKEN, "sh", sys.executable, "-m", "trt_responses", "serve"),
            stdin=self.listening.fileno(),
            stdout=asyncio.subprocess.DEVNULL,
            env=self._environment,
        )
        await self.heard("READY=1")
        return process

    async def heard(self, state: str) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_S):
            while not (await loop.sock_recv(self._news, 1000)).decode().startswith(state):
                pass

    def close(self) -> None:
        self.listening.close()
        self._news.close()


@pytest.mark.xdist_group("embedded")
def test_a_restart_refuses_no_connection_and_answers_each(
    small_engines_dir: Path, tmp_path: Path
) -> None:
    """Budget: 12 s."""
    systemd = Systemd(small_engines_dir, tmp_path)
    answers: list[bytes] = []
    stopped = asyncio.Event()

    async def probes() -> None:
        while not stopped.is_set():
            reader, writer = await asyncio.open_connection("127.0.0.1", systemd.port)
            writer.write(PROBE)
            answers.append(await reader.readline())
            writer.close()

    async def story() -> None:
        old = await systemd.start()
        asking = asyncio.create_task(probes())
        old.send_signal(signal.SIGTERM)
        await systemd.heard("STOPPING=1")
        assert await old.wait() == 0
        new = await systemd.start()
        stopped.set()
        await asking
        new.send_signal(signal.SIGTERM)
        assert await new.wait() == 0
        assert len(answers) > 2
        assert set(answers) == {b"HTTP/1.1 200 OK\r\n"}

    try:
        asyncio.run(story())
    finally:
        systemd.close()

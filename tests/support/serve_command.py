"""`trt-responses serve` as a user types it: a process in a directory and a home of its own."""

from __future__ import annotations

import asyncio
import http.client
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2 as httpx

from tests.support.imports import ROOT
from tests.support.polling import PATIENCE_S, until_seen
from trt_responses.settings import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path


class Command:
    """One server's process, which ends with the `with`; what it prints goes into a file."""

    def __init__(
        self,
        place: Path,
        *typed: str,
        env: Mapping[str, str] | None = None,
        largest_bytes: int | None = None,
        output: str | None = None,
    ) -> None:
        """`output` is another file for standard output alone."""
        self._log = place / "printed"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        kept = {name: text for name, text in os.environ.items() if not name.startswith(PREFIX)}
        own = {"HOME": str(place), "PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"}
        own |= {f"{PREFIX}CONTEXT_TOKENS": "512", f"{PREFIX}SLOTS": "1", f"{PREFIX}THREADS": "1"}
        own |= {f"{PREFIX}LINGER_S": "0", f"{PREFIX}DRAIN_S": "0"}
        for name in ("HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HF_HUB_OFFLINE"):
            kept.pop(name, None)

        def limited() -> None:
            if largest_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest_bytes, largest_bytes))

        port = ("--port", self.url.rpartition(":")[2])
        with self._log.open("w") as log, open(output or os.devnull, "w") as other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trt_responses", "serve", *typed, *port],
                cwd=place,
                env=kept | own | dict(env or {}),
                stdout=other if output else log,
                stderr=log,
                preexec_fn=limited,
            )

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def printed(self) -> str:
        return self._log.read_text("utf-8")

    def until_printed(self, words: str) -> None:
        """Wait until it has printed the words."""
        self.until(lambda: words in self.printed)

    def until_ready(self) -> None:
        self.until(self._is_ready)

    def until(self, claim: Callable[[], bool]) -> None:
        """Wait until the claim holds."""
        asyncio.run(until_seen(lambda: claim() or self._process.poll() is not None))
        assert claim(), self.printed

    def answer(self) -> dict[str, Any]:
        """Its response to a greeting, of the model that it lists first."""
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False) as client:
            model = client.get("/v1/models").json()["data"][0]
            body = {"model": model["id"], "input": "Hello", "max_output_tokens": 4}
            reply = client.post("/v1/responses", json=body)
            assert reply.status_code == 200, reply.text
            found: dict[str, Any] = reply.json()
            return found

    def ended(self) -> int:
        """Its status, when it ends by itself."""
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE_S)

    def _is_ready(self) -> bool:
        """Asked without the client of `answer`, which reads all certificates anew: 20 ms a look."""
        connection = http.client.HTTPConnection(
            self.url.removeprefix("http://"), timeout=PATIENCE_S
        )
        try:
            connection.request("GET", "/health/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


@contextmanager
def serve(place: Path, *typed: str, env: Mapping[str, str] | None = None) -> Iterator[Command]:
    """A server that is ready, and that is stopped at the end."""
    with Command(place, *typed, env=env) as command:
        command.until_ready()
        yield command

"""A server started for one chat, and stopped with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trt_responses.cli.client import Server, ServerFault

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
READY = " is ready"


@contextmanager
def own_server(model: str | None) -> Iterator[Server]:
    """Serve a model, or the default one, at a free port. What the server prints before it is ready
    goes to standard error."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "trt_responses", "serve", "--host", HOST, "--port", str(port)]
    process = subprocess.Popen(
        [*command, *([model] if model else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TRT_RESPONSES_LOG_LEVEL": "error"},
        start_new_session=True,  # a Ctrl-C in the chat stops an answer
    )
    try:
        _wait(process)
        yield Server(f"http://{HOST}:{port}/v1", os.environ.get("OPENAI_API_KEY"))
    finally:
        process.send_signal(signal.SIGINT)  # no time for a proxy to notice
        process.wait()


def _wait(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if READY in line:
            return
        print(line, end="", file=sys.stderr)
    raise ServerFault("The server did not start: its messages above say why.")

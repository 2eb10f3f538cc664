"""llama.cpp's whole HTTP server, as its wheel brings it, in a process of its own: prints its port
and serves until the end of its input."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.support.echo_engines import program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = "secret"


@asynccontextmanager
async def llama_server(
    model: Path, *, context: int, slots: int, port: int = 0
) -> AsyncIterator[tuple[Any, int]]:
    """Its process and its port, once it listens; it may still load."""
    given = {"model": str(model), "context": context, "slots": slots, "port": port}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *program(__name__), json.dumps(given), stdin=pipe, stdout=pipe
    )
    assert process.stdout is not None
    try:
        yield process, int(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def main() -> None:
    import xllamacpp

    given = json.loads(sys.argv[-1])
    params = xllamacpp.CommonParams()
    params.model.path = given["model"]
    params.n_ctx = given["context"] * given["slots"]
    params.n_parallel = given["slots"]
    params.fit_params = False
    params.hostnames, params.port = ["127.0.0.1"], given["port"]
    params.api_keys = [KEY]
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads, cpu.poll = 1, 0
    server = xllamacpp.Server(params)
    print(urlsplit(server.listening_address).port, flush=True)
    sys.stdin.read()

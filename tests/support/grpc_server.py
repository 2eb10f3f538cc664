"""Servers over gRPC in the place of `trtllm-serve --grpc`: on a test's event loop, or as a process
that may be killed and frozen."""

from __future__ import annotations

import asyncio
import builtins
import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc

from tests.support.double.llm import Double
from tests.support.double.results import Hang, Script
from tests.support.double.worker import Worker
from tests.support.echo_engines import STEP_S, STILL, program
from tests.support.engine_claims import CONTEXT, SLOTS
from tests.support.grpc_servicers import Servicer
from tests.support.vllm_servicer import VllmServicer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.support.double.llm import LLM
    from tests.support.double.words import SamplingParams

ENDLESS = 100_000
"""The context of a server whose requests go on until something ends them."""


def echoed(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
    """What it says depends on the prompt alone. Where it is drawn and may go on to the end of the
    context, it stands still before that."""
    groups = tuple((prompt_ids[n % len(prompt_ids)] + n,) for n in range(CONTEXT))
    endless = params.temperature and len(prompt_ids) + params.max_tokens >= CONTEXT
    return Script((*groups[:STILL], Hang()) if endless else groups)


def echo_llm() -> LLM:
    return llm_of(Double(echoed, version="main"))


def worker_llm(error: str | None = None, *, dies: str = "") -> LLM:
    """One with a rank's process, which steps until it is killed, frozen or fails; `error` is the
    class that tells its death, if one does; `dies` may be "loading"."""
    failure = getattr(builtins, error)("a rank has failed") if error else None

    def begun() -> Worker:
        worker = Worker(failure, step_s=STEP_S)
        if dies == "loading":
            worker.kill()
        return worker

    def says(prompt_ids: Sequence[int], params: SamplingParams) -> Script:
        return Script(((7,),) * params.max_tokens)

    double = Double(says, version="main", worker=begun)
    return llm_of(double, max_seq_len=ENDLESS, max_num_tokens=ENDLESS, max_batch_size=720)


def llm_of(double: Double, **arguments: object) -> LLM:
    given = {"max_seq_len": CONTEXT, "max_batch_size": SLOTS, "max_num_tokens": CONTEXT}
    double.package().llm(model="checkpoint", **{**given, **arguments})
    return double.llms[-1]


@asynccontextmanager
async def served(servicer: Servicer | VllmServicer, port: int = 0) -> AsyncIterator[int]:
    """The port of a server on this event loop."""
    if isinstance(servicer, VllmServicer):
        await servicer.engine.start()
    server = grpc.aio.server()
    servicer.join(server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


class ServerProcess:
    """A server in a process of its own, with a rank's process below it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.pid = process.pid
        self.port = port
        self._process = process

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def server_process(
    error: str | None = None, *, port: int = 0, dies: str = ""
) -> AsyncIterator[ServerProcess]:
    """A server that takes requests; one whose rank dies while it loads never does."""
    given = {"error": error, "port": port, "dies": dies}
    process = await asyncio.create_subprocess_exec(
        *program(__name__),
        json.dumps(given),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = await process.stdout.readline()
    found = ServerProcess(process, int(line or 0))
    try:
        yield found
    finally:
        await found.end()


async def _serve(error: str | None, port: int, dies: str) -> None:
    async with served(Servicer(worker_llm(error, dies=dies)), port) as bound:
        print(bound, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    given = json.loads(sys.argv[-1])
    asyncio.run(_serve(given["error"], given["port"], given["dies"]))

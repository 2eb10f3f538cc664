"""`vllm serve` of the Python that VLLM_PYTHON names, over an engine core that plays a script.

The core is the kit's mock, which follows guides as the engine of scripts does: JSON and regex. It
proves vLLM's routes, its checks of a request and its ids, and nothing of its engine.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import zmq
from responses_conformance.mocks.play import Play
from responses_conformance.mocks.vllm import Core, shake_hands
from responses_conformance.peers.model import model
from responses_conformance.peers.start import free_port, process

from tests.support.echo_engines import program
from tests.support.polling import polled
from trt_responses.engine import GenerateOptions, Guide
from trt_responses.errors import ApiError
from trt_responses.features.script.engine import ScriptEngine
from trt_responses.features.script.playing import Player
from trt_responses.features.script.rules import Request, load
from trt_responses.tokens.vocabulary import load as vocabulary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from subprocess import Popen

    from trt_responses.engine import GuideKind

PYTHON = os.environ.get("VLLM_PYTHON")
GUIDES: Mapping[str, GuideKind] = {"json": "json_schema", "regex": "regex", "grammar": "lark"}
SERVE = ("-c", "from vllm.entrypoints.cli.main import main; main()", "serve")
OPTIONS = ("--enable-scale-out", "--host", "127.0.0.1", "--data-parallel-size-local", "0")
VARIABLES = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


class VllmApp:
    """Its process and its core's."""

    def __init__(self, processes: ExitStack) -> None:
        self._processes = processes

    def kill(self) -> None:
        self._processes.close()


@asynccontextmanager
async def vllm_app(port: int, script: str) -> AsyncIterator[tuple[VllmApp, int]]:
    """The server and its port, once it answers; `port` 0: a free one."""
    assert PYTHON is not None
    port, handshake = port or free_port(), free_port()
    with TemporaryDirectory() as folder, ExitStack() as stack:
        place = str(model(vocabulary().token_bytes, Path(folder)))
        ports = ("--port", str(port), "--data-parallel-rpc-port", str(handshake))
        command = (PYTHON, *SERVE, place, "--served-model-name", "demo", *OPTIONS, *ports)
        app = stack.enter_context(process(*command, variables=VARIABLES | {"PYTHONPATH": ""}))
        core = (*program(__name__), f"tcp://127.0.0.1:{handshake}", script)
        paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
        stack.enter_context(process(*core, variables=paths))
        await _answering(app, f"http://127.0.0.1:{port}/health")
        yield VllmApp(stack), port


async def _answering(app: Popen[str], url: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:

        async def look() -> bool | None:
            assert app.poll() is None, "vLLM ended: name a file in PEERS_LOG to read why"
            try:
                return (await client.get(url)).status_code == 200 or None
            except httpx.TransportError:
                return None

        await polled(look)


class Scripted:
    """Chooses the ids of a request of vLLM's engine core by a script."""

    def __init__(self, script: str) -> None:
        self._engine = ScriptEngine(load(script), vocabulary())

    def __call__(self, request: list[Any]) -> tuple[Play, int]:
        """What is played, and the steps a second."""
        prompt, sampling = request[1], request[3]
        given = sampling.get("structured_outputs") or {}
        guides = [Guide(kind, given[name]) for name, kind in GUIDES.items() if given.get(name)]
        most = sampling.get("max_tokens") or 16
        options = GenerateOptions(most, (), guide=guides[0] if guides else None)
        run = self._engine.of(Request())
        scene = run.scene(prompt)
        rule = run.rule_for(scene)
        try:
            ids = Player(rule, Request(), 0, vocabulary()).ids(scene, options)
        except ApiError:
            return Play((), "length"), 0
        stops = {*sampling.get("stop_token_ids", ()), sampling.get("_eos_token_id")}
        at = next((n for n, token_id in enumerate(ids) if token_id in stops), len(ids))
        pace = round(1 / rule.pace_s) if rule.pace_s else 0
        if at >= most:
            return Play(tuple(ids[:most]), "length"), pace
        return Play(tuple(ids[: at + 1]), "stop", ids[at] if at < len(ids) else None), pace


def main() -> None:
    """The engine core, until it is killed."""
    handshake, script = sys.argv[-2:]
    with zmq.Context() as context:
        core = Core(Scripted(script), context)
        core.connect(*shake_hands(context, handshake, remote=True))
        core.serve()

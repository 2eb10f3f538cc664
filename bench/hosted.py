"""The scripted engine in a process of its own, and the server in front of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bench.ours import SETTINGS
from bench.script import script
from trt_responses import __version__
from trt_responses.app import create_app
from trt_responses.engine.remote.child import host
from trt_responses.engine.remote.client import RemoteEngine
from trt_responses.engine.remote.process import EngineProcess
from trt_responses.engine.scripted.engine import Script, ScriptedEngine
from trt_responses.tokens import vocabulary as vocabularies

if TYPE_CHECKING:
    from fastapi import FastAPI

    from trt_responses.engine.base import Engine


def app(length: int, chunk: int) -> FastAPI:
    """The server, whose engine plays such a script behind a socket."""
    command = (sys.executable, "-m", "bench.hosted")
    process = EngineProcess(command, {"length": length, "chunk": chunk})
    return create_app(SETTINGS, engine=RemoteEngine(__version__, process=process))


def _made(given: dict[str, Any]) -> Engine:
    played = Script(script(vocabularies.load(), given["length"]).steps(given["chunk"]))
    return ScriptedEngine([played], max_batch=4096, keep_records=1)


if __name__ == "__main__":
    host(_made)

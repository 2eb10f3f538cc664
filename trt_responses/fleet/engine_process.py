"""The served engine in a process of its own, where the settings say so; and that process's program.

Knows the settings and the seam's two ends; knows no request and no HTTP. TensorRT-LLM's process has
a program of its own (`trtllm_process.py`), since it may run in another environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trt_responses import __version__
from trt_responses.backends import engines
from trt_responses.backends.settings import EngineSettings
from trt_responses.engine import Engine
from trt_responses.engines.remote.child import host
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.engines.remote.process import EngineProcess, Patience
from trt_responses.errors import StartupError
from trt_responses.fleet.settings import silence_s
from trt_responses.prepare.shelf.shelf import Selection
from trt_responses.settings import PREFIX, Settings, secrets

Arguments = Mapping[str, object]
Variables = Mapping[str, str]

KINDS = frozenset({"trtllm"})
"""The kinds of engine that have a process of their own unless settings say otherwise: TensorRT-LLM
may freeze or never end. The embedded engine has a child already, and the others are threads that
are quick to load."""
MODULE = "trt_responses.fleet.engine_process"
TRTLLM_MODULE = "trt_responses.fleet.trtllm_process"
ELSEWHERE = """\
import importlib.util, pathlib, runpy, sys
place, module = sys.argv[1:]
start = pathlib.Path(place, "__init__.py")
spec = importlib.util.spec_from_file_location("trt_responses", start)
sys.modules["trt_responses"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
runpy.run_module(module, run_name="__main__")
"""
"""A program that runs a module of this package in an environment that does not have it. A path of
modules would also bring whatever else is installed beside it."""
NOT_GIVEN = {"store", "store_keys"}
"""Settings that may hold a password, and that an engine does not need."""


def engine_of(selection: Selection, settings: Settings) -> Engine:
    """The engine that serves a prepared directory, in this process or in one of its own."""
    wanted = EngineSettings.of(settings).engine_process
    if wanted == "never" or (wanted == "auto" and selection.card.kind not in KINDS):
        if selection.card.kind == "trtllm" and EngineSettings.of(settings).trtllm_python:
            raise StartupError(
                f"{PREFIX}TRTLLM_PYTHON names another interpreter, which takes a process of its "
                f"own: leave out {PREFIX}ENGINE_PROCESS=never."
            )
        return engines.engine_of(selection, settings)
    process = process_of(selection, settings)
    return RemoteEngine(__version__, process=process)


def process_of(selection: Selection, settings: Settings) -> EngineProcess:
    """The process that will host the engine of a prepared directory."""
    if selection.card.kind == "trtllm":
        given = engines.trtllm_start(selection.directory, selection.card)
        return _trtllm_process(settings, *given)
    arguments = {
        "directory": str(selection.directory.absolute()),
        "settings": settings.model_dump(mode="json", exclude=NOT_GIVEN | secrets()),
    }
    return EngineProcess((sys.executable, "-m", MODULE), arguments, _patience(settings))


def trtllm_starter(
    settings: Settings,
) -> Callable[[Path, Arguments, Variables, int | None], Engine]:
    """What makes an engine of TensorRT-LLM while it is prepared: in this process, unless another
    interpreter has the package."""
    if EngineSettings.of(settings).trtllm_python is None:
        return engines.trtllm_over

    def start(
        checkpoint: Path, arguments: Arguments, variables: Variables, end_id: int | None
    ) -> Engine:
        process = _trtllm_process(settings, checkpoint, arguments, variables, end_id)
        return RemoteEngine(__version__, process=process)

    return start


def _trtllm_process(
    settings: Settings,
    checkpoint: Path,
    arguments: Arguments,
    variables: Variables,
    end_id: int | None,
    adapters: Mapping[str, Path] | None = None,
) -> EngineProcess:
    local = EngineSettings.of(settings)
    given = {
        "checkpoint": str(checkpoint.absolute()),
        "arguments": dict(arguments),
        "variables": dict(variables),
        "end_id": end_id,
        "adapters": {name: str(path) for name, path in (adapters or {}).items()},
    }
    command: tuple[str, ...] = (sys.executable, "-m", TRTLLM_MODULE)
    if local.trtllm_python is not None:
        place = str(Path(__file__).parents[1])
        command = (str(local.trtllm_python), "-P", "-c", ELSEWHERE, place, TRTLLM_MODULE)
    return EngineProcess(command, given, _patience(settings))


def _patience(settings: Settings) -> Patience:
    return Patience(silence_s=silence_s(settings))


def main() -> None:
    """The program of the engine's process."""
    host(_engine_from)


def _engine_from(given: dict[str, Any]) -> Engine:
    return engines.engine_at(Path(given["directory"]), Settings(**given["settings"]))


if __name__ == "__main__":
    main()

"""The served engine in a process of its own, where the settings say so; and that process's program.

Knows the settings and the seam's two ends; knows no request and no HTTP.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trt_responses import __version__, backends
from trt_responses.engine.remote.child import host
from trt_responses.engine.remote.client import RemoteEngine
from trt_responses.engine.remote.process import EngineProcess, Patience
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from trt_responses.engine.base import Engine
    from trt_responses.prepare.shelf import Selection

KINDS = frozenset({"trtllm"})
"""What has a process of its own unless told otherwise: TensorRT-LLM may freeze or never end. The
embedded engine has a child already, and the others are threads that are quick to load."""
MODULE = "trt_responses.serve.engine_process"
SECRETS = {"api_keys", "metrics_key", "seal_keys", "store"}


def engine_of(selection: Selection, settings: Settings) -> Engine:
    """The engine that serves a prepared directory, in this process or in one of its own."""
    wanted = settings.engine_process
    if wanted == "never" or (wanted == "auto" and selection.card.kind not in KINDS):
        return backends.engine_of(selection, settings)
    process = process_of(selection, settings)
    return RemoteEngine(__version__, process=process)


def process_of(selection: Selection, settings: Settings) -> EngineProcess:
    """The process that will host the engine of a prepared directory."""
    given = {
        "directory": str(selection.directory.absolute()),
        "settings": settings.model_dump(mode="json", exclude=SECRETS),
    }
    patience = Patience(
        start_s=settings.engine_start_s,
        silence_s=settings.engine_silence_s,
        restarts=settings.engine_restarts,
    )
    return EngineProcess((sys.executable, "-m", MODULE), given, patience)


def main() -> None:
    host(_made)


def _made(given: dict[str, Any]) -> Engine:
    return backends.engine_at(Path(given["directory"]), Settings(**given["settings"]))


if __name__ == "__main__":
    main()

"""This server over an engine process that plays scripts: `python -m bench.servers.ours PLAYS
FRONTENDS FOLDER`. One front end keeps responses in memory; several need SQLite.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.asks import MODEL
from bench.hosted import MAX_BATCH, Paced
from trt_responses import __version__
from trt_responses.app import create_app
from trt_responses.cli.demo import prepare_demo
from trt_responses.engines.remote.child import host
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.engines.remote.process import EngineProcess
from trt_responses.engines.scripted.engine import Script, ScriptedEngine
from trt_responses.fleet.fleet import serve_fleet
from trt_responses.prepare.shelf.shelf import DEMO
from trt_responses.serve.server import bound, log_to_stderr, run_server
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.engine import Engine, GenerateOptions


def made(given: dict[str, Any]) -> Engine:
    """The engine, whose pace is that of the newest request."""
    clock = Paced(0)
    paces = {int(most): play["steps_a_second"] for most, play in given["plays"].items()}
    scripts = {
        int(most): Script(tuple((token_id,) for token_id in play["ids"]))
        for most, play in given["plays"].items()
    }

    def play(_: Sequence[int], options: GenerateOptions) -> Script:
        pace = paces[options.max_tokens]
        clock.step_s = 1 / pace if pace else 0
        return scripts[options.max_tokens]

    return ScriptedEngine(play, clock=clock, max_batch=MAX_BATCH, keep_records=1)


def main(plays: str, frontends: str, folder: str) -> None:
    """Serve until SIGINT."""
    process = EngineProcess(
        (sys.executable, "-m", "bench.servers.ours"), json.loads(Path(plays).read_text())
    )
    one = frontends == "1"
    settings = Settings(
        model=MODEL,
        engine=DEMO,  # whose card front ends serve by
        engines_dir=Settings.from_environment().engines_dir,
        data_dir=Path(folder),
        store="memory://" if one else f"sqlite:///{folder}/history.db",
        port=0,
        frontends=int(frontends),
        max_waiting=MAX_BATCH,
        date="2026-01-01",
        log_level="error",
    )
    if not one:
        prepare_demo(settings)
        serve_fleet(settings, lambda settings: (settings, process))
        return
    log_to_stderr(settings)
    with suppress(KeyboardInterrupt), bound(settings) as address:
        app = create_app(settings, engine=RemoteEngine(__version__, process=process))
        run_server(app, settings, address)


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else host(made)

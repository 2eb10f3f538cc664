"""This server over an engine process that plays scripts: `python -m bench.servers.ours PLAYS
FRONTENDS STORE FOLDER`. Several front ends need SQLite.
"""

from __future__ import annotations

import itertools
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.asks import MODEL
from bench.hosted import MAX_BATCH, Paced
from tests.support.scripted.engine import Script, ScriptedEngine
from trt_responses import __version__
from trt_responses.app import create_app
from trt_responses.cli.building import prepare_demo
from trt_responses.engines.remote.child import host
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.engines.remote.process import EngineProcess
from trt_responses.fleet.fleet import serve_fleet
from trt_responses.logs import log_to_stderr
from trt_responses.prepare.shelf.shelf import DEMO
from trt_responses.serve.server import Server, bound, run_server
from trt_responses.settings import Settings
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.engine import Engine, GenerateOptions


SOME_IDS = 1000
"""From here on, ids of whole characters."""


def made(given: dict[str, Any]) -> Engine:
    """The engine, whose pace is that of the newest request."""
    clock = Paced(0)
    plays = {int(most): play for most, play in given["plays"].items()}
    scripts = {most: _script(play["ids"]) for most, play in plays.items()}
    numbers = itertools.count()

    def play(_: Sequence[int], options: GenerateOptions) -> Script:
        chosen = plays[options.max_tokens]
        pace = chosen["steps_a_second"]
        clock.step_s = 1 / pace if pace else 0
        if given["unlike"]:
            return _script(numbered(chosen["ids"], next(numbers)))
        return scripts[options.max_tokens]

    return ScriptedEngine(play, clock=clock, max_batch=MAX_BATCH, keep_records=1)


def numbered(token_ids: Sequence[int], number: int) -> list[int]:
    """The same with two ids of its own at the head of each message, which are ASCII words."""
    own = [SOME_IDS + number // 100, SOME_IDS + number % 100]
    return [
        each
        for token_id in token_ids
        for each in ((token_id, *own) if token_id == CONTROL.message else (token_id,))
    ]


def _script(token_ids: Sequence[int]) -> Script:
    return Script(tuple((token_id,) for token_id in token_ids))


def main(plays: str, frontends: str, store: str, folder: str) -> None:
    """Serve until SIGINT."""
    process = EngineProcess(
        (sys.executable, "-m", "bench.servers.ours"), json.loads(Path(plays).read_text())
    )
    settings = Settings(
        model=MODEL,
        engine=DEMO,  # whose card front ends serve by
        engines_dir=Settings.from_environment().engines_dir,
        data_dir=Path(folder),
        store="memory://" if store == "memory" else f"sqlite:///{folder}/history.db",
        port=0,
        frontends=int(frontends),
        max_waiting=MAX_BATCH,
        date="2026-01-01",
        log_level="error",
    )
    if int(frontends) > 1:
        prepare_demo(settings)
        serve_fleet(settings, process)
        return
    log_to_stderr(settings)
    with suppress(KeyboardInterrupt), bound(settings) as address:
        app = create_app(settings, engine=RemoteEngine(__version__, process=process))
        run_server(Server(app, settings), address)


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else host(made)

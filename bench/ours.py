"""The server itself over a scripted engine, put together by its public names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.asks import MODEL
from tests.support.scripted import engine
from trt_responses.app import create_app
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from bench.script import Script
    from trt_responses.store import Store

SETTINGS = Settings(model=MODEL, max_waiting=4096, date="2026-01-01", log_level="warning")


class Playing:
    """The server, whose engine plays to every request the script that is on."""

    def __init__(self, store: Store | None = None) -> None:
        self.on = engine.Script()
        self.engine = engine.ScriptedEngine(
            lambda _prompt, _options: self.on, max_batch=4096, keep_records=1
        )
        self.app: FastAPI = create_app(SETTINGS, engine=self.engine, store=store)

    def play(self, script: Script, chunk: int) -> FastAPI:
        """Play such a script from now on; the app, which is the same one each time."""
        self.on = engine.Script(script.steps(chunk))
        return self.app

"""One front end of a fleet: a whole server over an engine that others serve from, too.

`python -m trt_responses.fleet.front_end` reads one line of JSON, which the fleet gives it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.app import create_app
from trt_responses.backends.elsewhere import elsewhere_in
from trt_responses.children import die_with
from trt_responses.errors import StartupError
from trt_responses.features.metrics.metrics import Metrics
from trt_responses.fleet.counts import COUNTS, SharedCounts
from trt_responses.fleet.following import Following
from trt_responses.fleet.settings import FleetSettings
from trt_responses.fleet.siblings import Siblings
from trt_responses.logs import log_to_stderr
from trt_responses.serve.server import LostEngineError, Server, bound, run_server
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

    from trt_responses.engine import Engine
    from trt_responses.prepare.shelf.shelf import Selection


BEAT_S = 0.5
"""Seconds between two signs of life: empty lines on standard output, for the fleet."""
ENGINE_LOST = 3
"""The exit status of a front end whose engine serves no more, though its process may live."""


def main() -> int:
    """The program of one front end."""
    first = json.loads(sys.stdin.readline())
    die_with(first["parent"], signal.SIGTERM)
    settings = Settings(**first["settings"])
    folder, number = Path(first["folder"]), first["number"]
    following = Following(folder, number, settings, first["name"])

    def engine_of(_: Selection, settings: Settings) -> Engine:
        return following.engine(first["engine"] or (settings.engine or "").partition("#")[2])

    log_to_stderr(settings)
    count = FleetSettings.of(settings).frontends
    given = Given(counts=SharedCounts(folder / COUNTS, number))
    if first["engine"]:
        given = given._replace(new_acts=following.over)
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with bound(settings, shared=True) as address:
            app = create_app(settings, engine_of=engine_of, given=given)
            join(app, Siblings(folder, number, count, app.state.server.of(Metrics)))
            if (elsewhere := elsewhere_in(settings)) and elsewhere.kind == "several":
                from trt_responses.fleet.several import share

                share(app, folder, number, count)
            run_server(Server(app, settings, listen_when_ready=first["others_serve"]), address)
    except StartupError as error:
        print(f"trt-responses: {error}", file=sys.stderr)
        return ENGINE_LOST if isinstance(error, LostEngineError) else 1
    except KeyboardInterrupt:  # uvicorn raises what stopped it again, when all is closed
        pass
    return 0


def join(app: FastAPI, siblings: Siblings) -> None:
    """Have an app's metrics speak for all front ends while it lives, and give signs of life."""
    own_life = app.router.lifespan_context

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        beating = asyncio.create_task(_beat())
        try:
            async with siblings.life(), own_life(app):
                yield
        finally:
            beating.cancel()
            await asyncio.wait((beating,))

    app.state.server.of(Metrics).others = siblings.others
    app.router.lifespan_context = life


async def _beat() -> None:
    while True:
        print(flush=True)
        await asyncio.sleep(BEAT_S)


if __name__ == "__main__":
    sys.exit(main())

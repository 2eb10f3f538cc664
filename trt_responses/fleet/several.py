"""Several engines behind the front ends of a fleet: a process for each that is prepared here.

An engine of another server is every front end's own affair. Knows processes; knows no request.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trt_responses.backends.engines import chosen_engine
from trt_responses.errors import StartupError, UsageError
from trt_responses.features.several.board import make_board, rows_of
from trt_responses.features.several.engine import SeveralEngines
from trt_responses.features.several.replica import RETRY_S
from trt_responses.features.several.spec import entries_of, spelled
from trt_responses.fleet.engine_process import process_of
from trt_responses.fleet.settings import FleetSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from fastapi import FastAPI

    from trt_responses.engines.remote.process import EngineProcess
    from trt_responses.features.several.spec import Entry
    from trt_responses.settings import Settings

logger = logging.getLogger(__name__)

BOARD = "engines"
"""The file's name in a fleet's folder."""
STOP_S = 15.0


class FleetEngines:
    """The engines of one fleet, each with its process if it has one."""

    def __init__(self, listed: str, settings: Settings, fail: Callable[[str], None]) -> None:
        """`fail` ends the fleet with a reason. Raises a `UsageError` for an engine that cannot be
        served here."""
        self._entries = entries_of(listed)
        self._front_ends = FleetSettings.of(settings).frontends
        self._fail = fail
        self._new = {entry: _process_of(entry, settings) for entry in self._entries if entry.local}

    @asynccontextmanager
    async def life(self, folder: Path) -> AsyncIterator[None]:
        """Keep the processes while it lasts."""
        make_board(folder / BOARD, len(self._entries), int(self._front_ends))
        tasks = [
            asyncio.create_task(self._keep(entry, folder / _socket(number)))
            for number, entry in enumerate(self._entries)
            if entry.local
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def setting(self, folder: Path) -> str:
        """What names the engines to a front end: behind a prepared one, its socket."""
        return spelled(
            (model, place if "://" in place else f"{place}#{folder / _socket(number)}")
            for number, (model, place) in enumerate(self._entries)
        )

    async def _keep(self, entry: Entry, link: Path) -> None:
        """Keep the process of one engine. The fleet ends when it cannot be started at first."""
        served = False
        while True:
            process = self._new[entry]()
            try:
                starting = asyncio.create_task(process.start())
                await asyncio.sleep(0)  # so that the socket's path is known
                _point(link, process.path)
                await starting
                served = True
                why = await process.lost()
            except StartupError as error:
                why = str(error)
            finally:
                await process.stop(STOP_S)
            if not served:
                self._fail(f"{entry.model} ({entry.place}): {why}")
                return
            logger.warning("retrying to start an engine in %g s: %s", RETRY_S, why)
            await asyncio.sleep(RETRY_S)


def _process_of(entry: Entry, settings: Settings) -> Callable[[], EngineProcess]:
    alone = settings.model_copy(update={"engine": entry.place})
    try:
        selection = chosen_engine(alone)
    except UsageError as error:
        raise UsageError(f"{settings.option('engine')}: {error}") from None
    return lambda: process_of(selection, alone)


def _point(link: Path, path: str) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(path)


def _socket(number: int) -> str:
    return f"engine-{number}.sock"


def share(app: FastAPI, folder: Path, number: int, front_ends: int) -> None:
    """Let the engines of one front end know what the others do."""
    rows = rows_of(folder / BOARD, front_ends, number)
    for replica, row in zip(app.state.server.of(SeveralEngines).replicas(), rows, strict=True):
        replica.row = row

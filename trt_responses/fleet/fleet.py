"""Several front ends on one port over one engine: started, watched, started again, drained.

Each front end is a server of its own that listens on the same address (SO_REUSEPORT). One that dies
costs its own connections. Knows processes; knows no request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections import Counter
from contextlib import AsyncExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trt_responses.backends.elsewhere import elsewhere_in
from trt_responses.backends.installed import needed
from trt_responses.backends.store_place import store_place
from trt_responses.engines.remote.process import LOOKS
from trt_responses.errors import StartupError, UsageError
from trt_responses.features.rollout.shelf_builds import PreparedBuilds, loaded
from trt_responses.files import close_folder_to_others
from trt_responses.fleet.counts import COUNTS, SharedCounts, make_counts
from trt_responses.fleet.engine_process import process_of
from trt_responses.fleet.front_end import ENGINE_LOST
from trt_responses.fleet.settings import FleetSettings, silence_s
from trt_responses.fleet.versions import FleetVersions, OwnEngine
from trt_responses.logs import log_to_stderr
from trt_responses.serve.server import bound, lasting, say
from trt_responses.setup.engine import selected
from trt_responses.systemd import Notifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trt_responses.engines.remote.process import EngineProcess
    from trt_responses.fleet.several import FleetEngines
    from trt_responses.prepare.shelf.shelf import Selection
    from trt_responses.settings import Settings

logger = logging.getLogger(__name__)

PROGRAM = "trt_responses.fleet.front_end"
CLOSING_S = 15.0
"""Seconds that front ends get to end, after their linger and their drain."""
GIVEN = "The engine was given by the program that runs this server, which exchanges it."
FIRST_BACKOFF_S, MOST_BACKOFF_S = 0.2, 30.0


def serve_fleet(settings: Settings, process: EngineProcess | None = None) -> int:
    """Serve until stopped, and return the exit status. `process` is the engine's, if it is not the
    one that the settings name."""
    settings = lasting(settings)
    if store_place(settings).kind == "memory":
        count = FleetSettings.of(settings).frontends
        raise UsageError(
            f"{settings.option('store')}: {count} front ends need a store that they "
            "share; use sqlite:///path or redis://host:port/number in place of memory://."
        )
    log_to_stderr(settings)
    close_folder_to_others(settings.data_dir)
    with kept_address(settings) as address:
        asyncio.run(Fleet(address, process).run())
    return 0


@contextmanager
def kept_address(settings: Settings) -> Iterator[Settings]:
    """Keep the address for this fleet's front ends, whether one listens or not. Gives the settings
    with its port; somebody else's address is a `StartupError`."""
    with bound(settings) as free:
        host, port = free.getsockname()[:2]
    settings = settings.model_copy(update={"host": host, "port": port})
    with bound(settings, shared=True) as kept:
        # Then Linux lets a socket be bound beside it that shares the port, and no other.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        yield settings


class Fleet:
    """The processes of `frontends` front ends, and the engine's where it is of this machine."""

    def __init__(self, settings: Settings, process: EngineProcess | None = None) -> None:
        self._settings = settings
        self._versions: FleetVersions | None = None
        """None where another server serves the engine."""
        self._name = ""
        """The engine's on the shelf."""
        self._engines: FleetEngines | None = None
        """Those of several, where some are of this machine."""
        if (elsewhere := elsewhere_in(settings)) is None:
            self._versions = self._first_of(process)
        elif elsewhere.kind == "several":
            with needed(f"{settings.option('engine')}: serving several engines"):
                from trt_responses.fleet.several import FleetEngines
            self._engines = FleetEngines(elsewhere.place, settings, self._fail)
        self._folder = Path(tempfile.mkdtemp(prefix="trt-fleet-"))
        self._counts = self._folder / COUNTS
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._ready: set[int] = set()
        """Those that have been up."""
        self._failures: Counter[int] = Counter()
        """The ends of each since it was up."""
        self._killed: set[int] = set()
        """Those that are to begin again."""
        self._stopping = asyncio.Event()
        self._signal = signal.SIGTERM
        self._fault: str | None = None
        self._notifier = Notifier()
        self._hash_seed = str(secrets.randbelow(2**32))
        """Of all front ends, so that each finds what another has digested."""

    def _first_of(self, process: EngineProcess | None) -> FleetVersions:
        settings, may_pause = self._settings, self._settings.engine_pause_s > 0
        selection = selected(settings)
        card = selection.card
        logger.info("serving %s (%s)", card.label, selection.reason)
        self._name = card.name
        names = (settings.model_name or card.name, *settings.model)
        self._settings = settings.model_copy(update={"model": names})

        def engine_of(selection: Selection, settings: Settings) -> OwnEngine:
            return OwnEngine(process or process_of(selection, settings))

        builds: PreparedBuilds | str = GIVEN
        if process is None:
            builds = PreparedBuilds(card.name, self._settings, engine_of)
        return FleetVersions(
            loaded(selection, self._settings, engine_of),
            builds,
            fail=self._fail,
            kill=self._kill,
            may_pause=may_pause,
        )

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            if self._versions is not None:
                await stack.enter_async_context(self._versions.life(self._folder))
            if self._engines is not None:
                await stack.enter_async_context(self._engines.life(self._folder))
            await self._run()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        count = FleetSettings.of(self._settings).frontends
        make_counts(self._counts, count)
        watching = asyncio.create_task(self._start_engine())
        await asyncio.sleep(0)  # so that the socket's path is known
        keepers = [asyncio.create_task(self._keep(number)) for number in range(count)]
        try:
            for task in (watching, *keepers):
                task.add_done_callback(self._broke)
            await self._stopping.wait()
            self._notifier.tell("STOPPING=1", "stopping")
            patience_s = self._settings.linger_s + self._settings.drain_s + CLOSING_S
            await asyncio.wait(keepers, timeout=patience_s)
        finally:
            for process in self._running.values():
                process.kill()
            await asyncio.gather(*keepers, return_exceptions=True)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._fault is not None:
            raise StartupError(self._fault)

    def _stop(self, number: signal.Signals) -> None:
        """Drain each front end; a second signal hurries them. One that still loads its modules
        would print a traceback at SIGINT."""
        self._signal = number
        self._stopping.set()
        if self._versions is not None:
            self._versions.drain()
        for name, process in self._running.items():
            with suppress(ProcessLookupError):  # it has just ended
                process.send_signal(number if name in self._ready else signal.SIGTERM)

    def _fail(self, fault: str) -> None:
        if self._fault is None:
            self._fault = fault
        self._stop(signal.SIGTERM)

    async def _start_engine(self) -> None:
        if self._versions is None:
            return
        try:
            await self._versions.start()
        except StartupError as error:
            self._fail(str(error))

    def _kill(self, number: int) -> None:
        """Kill a front end, which begins again."""
        if (process := self._running.get(number)) is not None:
            self._killed.add(number)
            with suppress(ProcessLookupError):
                process.kill()

    def _broke(self, task: asyncio.Task[None]) -> None:
        """End the fleet when a supervisor task has raised, or it would serve on without it."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            logger.error("a supervisor task failed; its process is not restarted", exc_info=fault)
            self._fail(f"The fleet broke ({type(fault).__name__}: {fault}).")

    async def _keep(self, number: int) -> None:
        """Keep a front end in this place: start another when one dies."""
        while not self._stopping.is_set():
            try:
                ended = await self._one(number)
            except OSError as error:  # no descriptor, no memory: it may come back
                if number not in self._ready:
                    raise
                ended = f"failed to start ({error})"
            if self._stopping.is_set():
                return
            logger.warning("restarting front end %d: %s", number + 1, ended)
            self._failures[number] += 1
            doubled = FIRST_BACKOFF_S * 2.0 ** min(self._failures[number], 20)
            await asyncio.sleep(min(MOST_BACKOFF_S, doubled))

    async def _one(self, number: int) -> str:
        """Start a front end and watch it to its end. Returns how it ended."""
        process = await self._begin(number)
        engine = self._versions.process if self._versions is not None else None
        engine_pid = engine.pid if engine is not None else None
        if self._stopping.is_set():  # the fleet began to stop while this one began
            with suppress(ProcessLookupError):
                process.terminate()  # it is not ready: see `_stop`
        status = await self._watched(number, process)
        del self._running[number]
        with closing(SharedCounts(self._counts, number)) as counts:
            counts.clear()  # what it made has ended with it
        if self._versions is not None:
            self._versions.ended(number)
        if not self._stopping.is_set():
            self._look_at_end(number, status, engine, engine_pid)
        return f"ended with status {status}"

    def _look_at_end(
        self, number: int, status: int, engine: EngineProcess | None, engine_pid: int | None
    ) -> None:
        """Do what an end asks for besides another start. `engine` and its id are of when the front
        end began."""
        if status == 0:
            logger.warning("shutting down: front end %d stopped", number + 1)
            self._stop(signal.SIGTERM)
        elif number in self._killed:
            self._killed.remove(number)
        elif number not in self._ready:
            self._fail(f"Front end {number + 1} ended in its start, with status {status}.")
        elif status == ENGINE_LOST and engine is not None and engine.pid == engine_pid:
            engine.restart("it makes no tokens")

    async def _watched(self, number: int, process: asyncio.subprocess.Process) -> int:
        """Wait for a front end's end, and return its status. One that is up and gives no sign of
        life any more is killed: it holds its clients and its places."""
        assert process.stdout is not None
        missed: float = -math.inf
        look_s = silence_s(self._settings) / LOOKS
        while True:
            try:
                async with asyncio.timeout(look_s):
                    line = await process.stdout.readline()
            except TimeoutError:
                missed += 1
                if missed == LOOKS:
                    logger.warning("killing front end %d: heartbeat timeout", number + 1)
                    process.kill()
                continue
            if not line:
                return await process.wait()
            missed = min(missed, 0)
            if line.strip():
                self._up(number, line.decode())
                missed = 0

    async def _begin(self, number: int) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", PROGRAM),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the fleet, which tells each
            env=os.environ | {"PYTHONHASHSEED": self._hash_seed},
        )
        self._running[number] = process
        settings, path = self._settings, ""
        if self._versions is not None:
            await self._versions.occupied.wait()
            place = self._versions.began(number)
            path, promoted = place["path"], f"{self._name}@{place['digest']}"
            settings = settings.model_copy(update={"engine": promoted})
        if self._engines is not None:
            settings = settings.model_copy(update={"engine": self._engines.setting(self._folder)})
        first = {
            "parent": os.getpid(),
            "number": number,
            "engine": path,
            "name": self._name,
            "folder": str(self._folder),
            "others_serve": self._others_serve(number),
            "settings": settings.model_dump(mode="json"),
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps(first).encode() + b"\n")
        return process

    def _others_serve(self, number: int) -> bool:
        """Whether others are up, so that clients need not meet one that starts."""
        return any(n in self._ready and not self._failures[n] for n in self._running if n != number)

    def _up(self, number: int, hello: str) -> None:
        """Print once that all are up, in the words of the last."""
        was_up = len(self._ready) == FleetSettings.of(self._settings).frontends
        self._ready.add(number)
        self._failures[number] = 0
        if not was_up and len(self._ready) == FleetSettings.of(self._settings).frontends:
            self._notifier.tell("READY=1", f"{len(self._ready)} front ends are ready")
            say(hello.rstrip())

"""The engine's versions in a fleet: which are loaded, in which processes, and who uses them.

The fleet makes every change, as a server of one process does, and owns the engines' processes.
Front ends follow: each holds a lease on the processes that it is connected to, and a version that
finishes is stopped when no one holds it. One of them runs the gate. Knows no request and no HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trt_responses import __version__
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.errors import StartupError
from trt_responses.features.rollout.bodies import LoadRequest
from trt_responses.features.rollout.exchange import Exchange
from trt_responses.features.rollout.measures import GateReport, LoadRefused, Took
from trt_responses.features.rollout.versions import Versions
from trt_responses.fleet.calls import MOST_BYTES, Calls, LostPeer
from trt_responses.health.lifecycle import Lifecycle
from trt_responses.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

    from trt_responses.engines.remote.process import EngineProcess
    from trt_responses.features.rollout.builds import Builds
    from trt_responses.features.rollout.loaded import Lease, Loaded
    from trt_responses.fleet.calls import Answer

    Place = dict[str, str]
    """What a front end connects to: the digest of a version, and the path of its engine."""

logger = logging.getLogger(__name__)

VERSIONS = "versions.sock"
"""The socket's name in a fleet's folder."""
STOP_S = 15.0
"""Seconds that engines get to stop, at the fleet's end."""
GATES = 3
"""Front ends that may end while they run the gate for one version."""


class OwnEngine(RemoteEngine):
    """An engine in a process of the fleet's."""

    def __init__(self, process: EngineProcess) -> None:
        super().__init__(__version__, process=process)
        self.process = process


class FleetVersions:
    """The versions of one fleet, and their gate."""

    def __init__(
        self,
        first: Loaded,
        builds: Builds | str,
        *,
        fail: Callable[[str], None],
        kill: Callable[[int], None],
        may_pause: bool = True,
    ) -> None:
        """`fail` ends the fleet with a reason; `kill` restarts a front end, by its number."""
        self.occupied = asyncio.Event()
        """Whether there is an engine, so that front ends may begin."""
        self.occupied.set()
        self._versions = Versions(first)
        self._lifecycle = Lifecycle()
        pause = self._pause if may_pause else None
        self._exchange = Exchange(
            self._versions, builds, lambda: self, self._lifecycle, pause, self._changed
        )
        self._candidate: Loaded | None = None
        """The version at the gate."""
        self._fail, self._kill = fail, kill
        self._held: dict[int, list[tuple[str, Lease]]] = {}
        """What each front end is connected to, from its begin to its end."""
        self._links: dict[int, Calls] = {}
        """Those that follow."""
        self._joined = asyncio.Event()
        self._watching: dict[EngineProcess, asyncio.Task[None]] = {}

    # --- its life -------------------------------------------------------------------------------

    @asynccontextmanager
    async def life(self, folder: Path) -> AsyncIterator[None]:
        """While it lasts front ends may join. All engines are stopped at its end."""
        server = await asyncio.start_unix_server(self._serve, folder / VERSIONS, limit=MOST_BYTES)
        try:
            async with self._exchange.life():
                yield
        finally:
            server.close()
            for task in self._watching.values():
                task.cancel()
            await asyncio.gather(*self._watching.values(), return_exceptions=True)
            await self._versions.stop(STOP_S)

    async def start(self) -> None:
        """Start the first version. Raises a `StartupError`."""
        await self._versions.start()
        self._watch()

    def drain(self) -> None:
        """Load nothing more, and let no front end wait for an engine."""
        self._lifecycle.drain(0)
        self.occupied.set()

    @property
    def process(self) -> EngineProcess:
        """The promoted version's."""
        return _process(self._versions.promoted)

    def _watch(self) -> None:
        """Watch the processes of all versions that take new runs."""
        for process in map(_process, self._versions):
            if process not in self._watching:
                self._watching[process] = asyncio.create_task(self._watched(process))

    async def _watched(self, process: EngineProcess) -> None:
        """End the fleet when the promoted version's process is lost, and a canary with its own."""
        why = await process.lost()
        if process is self.process:
            self._fail(f"The engine is lost and the server has ended: {why}")
        elif process in map(_process, self._versions):
            await self._exchange.drop_canary(f"its engine is lost: {why}")

    # --- its front ends -------------------------------------------------------------------------

    def began(self, number: int) -> Place:
        """Note a front end that begins. Returns what it connects to: the promoted version."""
        promoted = self._versions.promoted
        place = _place(promoted)
        self._held[number] = [(place["path"], promoted.lease())]
        return place

    def ended(self, number: int) -> None:
        for _, lease in self._held.pop(number, ()):
            lease.release()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one front end to its end."""
        number = int(await reader.readline())

        async def join() -> None:
            self._links[number] = calls
            self._joined.set()
            await self._ask(number, "follow", self._followed())

        async def hold(path: str) -> None:
            known = (*self._versions, *self._versions.finishing, self._candidate)
            for loaded in known:
                if loaded is not None and _path(loaded) == path and number in self._held:
                    self._held[number].append((path, loaded.lease()))
                    return

        async def release(path: str) -> None:
            held = self._held.get(number, [])
            for one in [one for one in held if one[0] == path][:1]:
                held.remove(one)
                one[1].release()

        async def load(name: str, wanted: dict[str, Any]) -> dict[str, Any]:
            return await self._exchange.load(name, LoadRequest(**wanted))

        answers: dict[str, Answer] = {"join": join, "hold": hold, "release": release, "load": load}
        answers |= {"state": self._state, "unload": self._exchange.unload}
        calls = Calls(reader, writer, answers)
        try:
            await calls.live()
        finally:
            if self._links.get(number) is calls:
                del self._links[number]
            if not self._links:
                self._joined.clear()

    async def _ask_all(self, name: str, *given: object) -> list[Any]:
        """What each front end answers."""
        return await asyncio.gather(*(self._ask(number, name, *given) for number in self._links))

    async def _ask(self, number: int, name: str, *given: object) -> Any:
        """What a front end answers. None from one that has gone, or that cannot: it is restarted,
        and begins with what is promoted."""
        try:
            return await self._links[number].call(name, *given)
        except (LostPeer, KeyError):
            return None
        except Exception as fault:
            logger.error("restarting front end %d: it cannot %s: %s", number + 1, name, fault)
            self._kill(number)
            return None

    async def _state(self, name: str) -> dict[str, Any]:
        """What an admin is shown, with the runs of all front ends."""
        runs: Counter[str] = Counter()
        for counted in await self._ask_all("runs"):
            runs.update(counted)
        body = await self._exchange.state(name)  # nothing changes between this and the end
        versions = self._versions
        shown = [body["promoted"], body["canary"], *body["finishing"]]
        loaded = [versions.promoted, versions.canary, *versions.finishing]
        for part, one in zip(shown, loaded, strict=True):
            if one is not None:
                part["runs"] = runs[_path(one)]
        return body

    # --- how a change reaches them --------------------------------------------------------------

    async def _changed(self) -> None:
        """Have all front ends follow."""
        promoted = self._versions.promoted
        if not promoted.health().alive:
            self._fail(f"The engine is lost and the server has ended: {promoted.health().reason}")
        if not promoted.vacant:
            self.occupied.set()
            self._watch()
            await self._ask_all("follow", self._followed())

    def _followed(self) -> dict[str, Any]:
        """The state that front ends follow."""
        canary, promoted = self._versions.canary, _place(self._versions.promoted)
        tried = None if canary is None else _place(canary)
        return {"promoted": promoted, "canary": tried, "share": self._versions.share}

    async def _pause(self, seat: Loaded) -> int:
        """Have all front ends leave the promoted version. Those that are connecting to it begin
        again when there is another."""
        self.occupied.clear()
        for number in self._held.keys() - self._links.keys():
            self._kill(number)
        return sum(paused or 0 for paused in await self._ask_all("leave", seat.health().reason))

    # --- the gate -------------------------------------------------------------------------------

    async def compare(self, old: Loaded, new: Loaded, *, exact: bool = False) -> GateReport:
        return GateReport(**await self._judged(new, "compare", _place(new), exact))

    async def recorded(self, old: Loaded) -> list[Took]:
        return [Took(**took) for took in await self._judged(None, "record")]

    async def compare_recorded(
        self, recorded: Sequence[Took], new: Loaded, *, exact: bool = False
    ) -> GateReport:
        old = [asdict(took) for took in recorded]
        return GateReport(**await self._judged(new, "compare", _place(new), exact, old))

    async def _judged(self, new: Loaded | None, name: str, *given: object) -> Any:
        """What one front end answers, while the others keep the new version in company."""
        self._candidate = new
        try:
            for _ in range(GATES):
                while not self._links:
                    await self._joined.wait()
                judge, *others = self._links.values()
                try:
                    async with AsyncExitStack() as stack:
                        for link in others:
                            if new is not None:
                                work = _unless_lost(link.call("accompany", _place(new)))
                                await stack.enter_async_context(beside(work))
                        return await _unless_dead(judge.call(name, *given), new)
                except LostPeer:
                    logger.warning("running the gate again: its front end ended")
            raise LoadRefused(f"{GATES} front ends ended while they ran the gate")
        finally:
            self._candidate = None


def _process(loaded: Loaded) -> EngineProcess:
    assert isinstance(loaded.engine, OwnEngine)
    return loaded.engine.process


def _path(loaded: Loaded) -> str:
    return _process(loaded).path


def _place(loaded: Loaded) -> Place:
    return {"digest": loaded.version.digest, "path": _path(loaded)}


async def _unless_lost(call: Coroutine[Any, Any, object]) -> None:
    try:
        await call
    except (LostPeer, StartupError) as error:
        logger.warning("a front end keeps the new version in company no more: %s", error)


async def _unless_dead(call: Coroutine[Any, Any, Any], new: Loaded | None) -> Any:
    """The result of a call about a version, refused when its process is given up first."""
    if new is None:
        return await call
    async with beside(call) as calling, beside(_process(new).lost()) as dying:
        await asyncio.wait((calling, dying), return_when=asyncio.FIRST_COMPLETED)
        if calling.done():
            return await calling
        raise LoadRefused(f"its process was given up: {await dying}".removesuffix("."))

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

from trt_responses.engine import Health, Limits
from trt_responses.errors import EngineUnavailable, StartupError
from trt_responses.features.rollout.bodies import LoadRequest
from trt_responses.features.rollout.exchange import Exchange
from trt_responses.features.rollout.loaded import Loaded
from trt_responses.features.rollout.measures import GateReport, Took
from trt_responses.features.rollout.refused import LoadRefused
from trt_responses.features.rollout.versions import Versions
from trt_responses.fleet.calls import MOST_BYTES, Calls, LostPeer
from trt_responses.health.lifecycle import Lifecycle
from trt_responses.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

    from trt_responses.engine import GenerateOptions, Handle, Sink
    from trt_responses.engines.remote.process import EngineProcess
    from trt_responses.features.rollout.builds import Builds
    from trt_responses.features.rollout.loaded import Lease

logger = logging.getLogger(__name__)

VERSIONS = "versions.sock"
"""The socket's name in a fleet's folder."""
GATES = 3
"""Front ends that may die while they run the gate for one version."""


class ProcessEngine:
    """An engine in a process of its own. Front ends send it requests; the fleet sends none."""

    def __init__(self, process: EngineProcess) -> None:
        self.process = process

    async def start(self) -> None:
        await self.process.start()

    async def stop(self, deadline_s: float) -> None:
        await self.process.stop(deadline_s)

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        raise EngineUnavailable("The fleet makes no responses.")

    def health(self) -> Health:
        process = self.process
        ready = process.alive and process.fault is None
        return Health(process.alive, ready, 0, process.fault)

    def limits(self) -> Limits:
        return Limits(0, 0)


class FleetVersions:
    """The versions of one fleet."""

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
        self._candidate: Loaded | None = None
        """The version at the gate."""
        self._versions = Versions(first)
        self._lifecycle = Lifecycle()
        pause = self._pause if may_pause else None
        gate = FleetGate(self)
        self._exchange = Exchange(
            self._versions, builds, lambda: gate, self._lifecycle, pause, self._changed
        )
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
        """While it lasts front ends may join."""
        server = await asyncio.start_unix_server(self._serve, folder / VERSIONS, limit=MOST_BYTES)
        try:
            async with self._exchange.life():
                yield
        finally:
            server.close()

    async def start(self) -> None:
        """Start the first version. Raises a `StartupError`."""
        await self._versions.start()
        self._watch()

    def drain(self) -> None:
        """Load nothing more."""
        self._lifecycle.drain(0)

    async def stop(self, deadline_s: float) -> None:
        for task in self._watching.values():
            task.cancel()
        await asyncio.gather(*self._watching.values(), return_exceptions=True)
        await self._versions.stop(deadline_s)

    @property
    def process(self) -> EngineProcess:
        """The promoted version's."""
        return _process(self._versions.promoted)

    def restart(self, pid: int | None, why: str) -> None:
        """Restart the promoted version's process, unless another has taken its place already."""
        if self.process.pid == pid:
            self.process.restart(why)

    @property
    def digest(self) -> str:
        """The promoted version's."""
        return self._versions.promoted.version.digest

    # --- its front ends -------------------------------------------------------------------------

    def began(self, number: int) -> str:
        """Note a front end that begins with the promoted version. Returns the path of its
        engine."""
        promoted = self._versions.promoted
        self._held[number] = [(path := _path(promoted), promoted.lease())]
        return path

    def ended(self, number: int) -> None:
        for _, lease in self._held.pop(number, ()):
            lease.release()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one front end to its end."""
        number = int(await reader.readline())

        async def join() -> None:
            self._links[number] = calls
            self._joined.set()
            await self._follow(number, calls)

        async def hold(path: str) -> None:
            if (loaded := self._at(path)) is not None and number in self._held:
                self._held[number].append((path, loaded.lease()))

        async def release(path: str) -> None:
            held = self._held.get(number, [])
            for one in [one for one in held if one[0] == path][:1]:
                held.remove(one)
                one[1].release()

        async def load(name: str, wanted: dict[str, Any]) -> dict[str, Any]:
            return await self._exchange.load(name, LoadRequest(**wanted))

        calls = Calls(
            reader,
            writer,
            {
                "join": join,
                "hold": hold,
                "release": release,
                "state": self._state,
                "load": load,
                "unload": self._exchange.unload,
            },
        )
        try:
            await calls.live()
        finally:
            if self._links.get(number) is calls:
                del self._links[number]
            if not self._links:
                self._joined.clear()

    def _at(self, path: str) -> Loaded | None:
        """The version whose engine is there."""
        known = (*self._versions, *self._versions.finishing)
        if self._candidate is not None:
            known = (*known, self._candidate)
        return next((loaded for loaded in known if _path(loaded) == path), None)

    async def _state(self, name: str) -> dict[str, Any]:
        """What an admin is shown, with the runs of all front ends."""
        counts = [_unless_lost(link.call("runs"), {}) for link in self._links.values()]
        runs: Counter[str] = Counter()
        for counted in await asyncio.gather(*counts):
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
        """Have all front ends follow; one that cannot is restarted, and begins with what is
        promoted."""
        promoted = self._versions.promoted
        if not promoted.health().alive:
            self._fail(f"The engine is lost and the server has ended: {promoted.health().reason}")
        if promoted.vacant:
            return
        self.occupied.set()
        self._watch()
        links = tuple(self._links.items())
        await asyncio.gather(*(self._follow(number, link) for number, link in links))

    async def _follow(self, number: int, link: Calls) -> None:
        canary, promoted = self._versions.canary, self._versions.promoted
        state = {
            "promoted": place_of(promoted),
            "canary": None if canary is None else place_of(canary),
            "share": self._versions.share,
        }
        await self._done_by(number, link.call("follow", state))

    async def _done_by(self, number: int, call: Coroutine[Any, Any, Any]) -> Any:
        """What a front end answers; None from one that has gone, or fails and is restarted."""
        try:
            return await call
        except LostPeer:
            return None
        except Exception as fault:
            logger.error("restarting front end %d: it cannot follow: %s", number + 1, fault)
            self._kill(number)
            return None

    async def _pause(self, seat: Loaded) -> int:
        """Have all front ends leave the promoted version. Those that are connecting to it begin
        again when there is another."""
        self.occupied.clear()
        for number in self._held.keys() - self._links.keys():
            self._kill(number)
        reason, links = seat.health().reason, tuple(self._links.items())
        left = (self._done_by(number, link.call("leave", reason)) for number, link in links)
        return sum(paused or 0 for paused in await asyncio.gather(*left))

    # --- engines that are lost ------------------------------------------------------------------

    def _watch(self) -> None:
        """Watch the processes of all versions that take new runs."""
        for loaded in self._versions:
            process = _process(loaded)
            if process not in self._watching:
                self._watching[process] = asyncio.create_task(self._watched(process))

    async def _watched(self, process: EngineProcess) -> None:
        """End the fleet when the promoted version's process is lost, and a canary with its own."""
        why = await process.lost()
        canary = self._versions.canary
        if process is self.process:
            self._fail(f"The engine is lost and the server has ended: {why}")
        elif canary is not None and process is _process(canary):
            await self._exchange.drop_canary(f"its engine is lost: {why}")

    # --- the gate -------------------------------------------------------------------------------

    async def judged(self, new: Loaded | None, name: str, *given: object) -> Any:
        """What one front end answers, while the others keep the new version in company."""
        self._candidate = new
        try:
            for _ in range(GATES):
                while not self._links:
                    await self._joined.wait()
                judge, *others = self._links.values()
                try:
                    async with AsyncExitStack() as stack:
                        if new is not None:
                            for link in others:
                                work = link.call("accompany", place_of(new))
                                await stack.enter_async_context(beside(_unless_lost(work, None)))
                        return await _unless_dead(judge.call(name, *given), new)
                except LostPeer:
                    logger.warning("running the gate again: its front end ended")
            raise LoadRefused(f"{GATES} front ends ended while they ran the gate")
        finally:
            self._candidate = None


class FleetGate:
    """The gate of a fleet, which runs in a front end."""

    def __init__(self, versions: FleetVersions) -> None:
        self._versions = versions

    async def compare(self, old: Loaded, new: Loaded, *, exact: bool = False) -> GateReport:
        return GateReport(**await self._versions.judged(new, "compare", place_of(new), exact))

    async def recorded(self, old: Loaded) -> list[Took]:
        return [Took(**took) for took in await self._versions.judged(None, "record")]

    async def compare_recorded(
        self, recorded: Sequence[Took], new: Loaded, *, exact: bool = False
    ) -> GateReport:
        old, place = [asdict(took) for took in recorded], place_of(new)
        return GateReport(**await self._versions.judged(new, "compare", place, exact, old))


def place_of(loaded: Loaded) -> dict[str, str]:
    """What a front end needs to connect to a version."""
    return {"digest": loaded.version.digest, "path": _path(loaded)}


def _process(loaded: Loaded) -> EngineProcess:
    assert isinstance(loaded.engine, ProcessEngine)
    return loaded.engine.process


def _path(loaded: Loaded) -> str:
    return _process(loaded).path


async def _unless_lost(call: Coroutine[Any, Any, Any], instead: Any) -> Any:
    try:
        return await call
    except (LostPeer, StartupError):
        return instead


async def _unless_dead(call: Coroutine[Any, Any, Any], new: Loaded | None) -> Any:
    """The result of a call about a version, refused when its process is given up first."""
    if new is None:
        return await call
    async with beside(call) as calling, beside(_process(new).lost()) as dying:
        await asyncio.wait((calling, dying), return_when=asyncio.FIRST_COMPLETED)
        if calling.done():
            return await calling
        raise LoadRefused(f"its process was given up: {await dying}".removesuffix("."))

"""The engine's versions in one front end, which follows what its fleet has decided.

It is connected to the engine of each version that it serves, or compares, and says so: the fleet
stops no process that is held. Knows runs and the engine's seam; decides nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trt_responses import __version__
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.errors import EngineUnavailable
from trt_responses.features.rollout.acts import Acts
from trt_responses.features.rollout.measures import Took
from trt_responses.features.rollout.shelf_builds import PreparedBuilds
from trt_responses.fleet.calls import MOST_BYTES, Calls
from trt_responses.fleet.versions import VERSIONS
from trt_responses.tasks import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from trt_responses.features.rollout.acts import Pause
    from trt_responses.features.rollout.bodies import LoadRequest
    from trt_responses.features.rollout.gate import Gate
    from trt_responses.features.rollout.loaded import Loaded, Version
    from trt_responses.features.rollout.versions import Versions
    from trt_responses.fleet.versions import Place
    from trt_responses.settings import Settings


class HeldEngine(RemoteEngine):
    """An engine that the fleet lets live until this front end has stopped using it."""

    def __init__(self, place: str, following: Following) -> None:
        super().__init__(__version__, path=place)
        self.place = place
        self._following = following

    async def stop(self, deadline_s: float) -> None:
        try:
            await super().stop(deadline_s)
        finally:
            self._following.release(self.place)


class Following(Acts):
    """The versions of one front end. An admin's acts are passed on to the fleet."""

    def __init__(self, folder: Path, number: int, settings: Settings, name: str) -> None:
        """`name` is the engine's on the shelf."""
        self._path = folder / VERSIONS
        self._number = number
        self._settings = settings
        self._name = name
        self._calls: Calls | None = None
        self._following: asyncio.Task[None] | None = None

    def engine(self, path: str) -> HeldEngine:
        return HeldEngine(path, self)

    def release(self, path: str) -> None:
        if self._calls is not None:
            self._calls.tell("release", path)

    def over(
        self, versions: Versions, new_gate: Callable[[], Gate], pause: Pause | None
    ) -> Following:
        """Itself, over what the server has made."""
        self._versions, self._new_gate, self._pause = versions, new_gate, pause
        return self

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """Follow the fleet. It serves nothing before it is at the fleet's present state."""
        reader, writer = await asyncio.open_unix_connection(self._path, limit=MOST_BYTES)
        writer.write(b"%d\n" % self._number)
        orders = (self.follow, self.leave, self.compare, self.record, self.accompany, self.runs)
        self._calls = Calls(reader, writer, {order.__name__: order for order in orders})
        async with beside(self._calls.live()):
            await self._calls.call("join")
            yield

    # --- what an admin asks ---------------------------------------------------------------------

    async def state(self, name: str) -> dict[str, Any]:
        return dict(await self._fleet("state", name))

    async def prepared(self) -> Sequence[Version]:
        return await asyncio.to_thread(self._builds("").versions)

    async def load(self, name: str, wanted: LoadRequest) -> dict[str, Any]:
        return dict(await self._fleet("load", name, wanted.model_dump()))

    async def unload(self, name: str, number: str | None = None) -> str:
        return str(await self._fleet("unload", name, number))

    async def _fleet(self, act: str, *given: object) -> Any:
        if self._calls is None:
            raise EngineUnavailable("This front end is starting.", retry_after_s=1)
        return await self._calls.call(act, *given)

    # --- what the fleet orders ------------------------------------------------------------------

    async def follow(self, state: dict[str, Any]) -> None:
        """Serve the versions of this state. A newer one takes its place."""
        before = self._following
        if before is not None:
            before.cancel()
        self._following = task = asyncio.create_task(self._followed(state, before))
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()

    async def _followed(self, state: dict[str, Any], before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        versions, promoted, canary = self._versions, state["promoted"], state["canary"]
        if not _is_at(promoted, versions.promoted):
            loaded = _is_at(promoted, versions.canary) or await self._opened(promoted)
            (versions.put_in_place if versions.promoted.vacant else versions.promote)(loaded)
        if canary is None:
            versions.end_canary()
        else:
            loaded = _is_at(canary, versions.canary) or await self._opened(canary)
            versions.try_out(loaded, state["share"])

    async def leave(self, reason: str) -> int:
        """Leave the promoted version, which is stopped next. Returns how many runs wait."""
        assert self._pause is not None
        seat = self._versions.promoted
        seat.leave(reason)
        paused = await self._pause(seat)
        await seat.stop()
        return paused

    async def compare(
        self, place: Place, exact: bool, recorded: list[dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """The gate's report of a version: beside the promoted one, or by what was recorded."""
        gate = self._new_gate()
        async with self._open(place) as loaded:
            if recorded is None:
                report = await gate.compare(self._versions.promoted, loaded, exact=exact)
            else:
                before = [Took(**took) for took in recorded]
                report = await gate.compare_recorded(before, loaded, exact=exact)
        return asdict(report)

    async def record(self) -> list[dict[str, Any]]:
        return [asdict(took) for took in await self._new_gate().recorded(self._versions.promoted)]

    async def accompany(self, place: Place) -> None:
        async with self._open(place) as loaded:
            await self._new_gate().accompany(self._versions.promoted, loaded)

    async def runs(self) -> dict[str, int]:
        """The runs of each version that is loaded, by the path of its engine."""
        versions = self._versions
        loaded = (*versions, *versions.finishing)
        return {one.engine.place: one.runs for one in loaded if isinstance(one.engine, HeldEngine)}

    # --- the engines ----------------------------------------------------------------------------

    @asynccontextmanager
    async def _open(self, place: Place) -> AsyncIterator[Loaded]:
        loaded = await self._opened(place)
        try:
            yield loaded
        finally:
            await loaded.stop()

    async def _opened(self, place: Place) -> Loaded:
        """A version, connected to its engine. Its stop releases it."""
        builds, served = self._builds(place["path"]), self._versions.promoted.version
        build = await asyncio.to_thread(builds.find, place["digest"], served)
        loaded = await asyncio.to_thread(build.load)
        assert self._calls is not None
        self._calls.tell("hold", place["path"])
        await loaded.start()
        return loaded

    def _builds(self, path: str) -> PreparedBuilds:
        """The versions on the shelf; the engine of each is at this path."""
        return PreparedBuilds(self._name, self._settings, lambda *_: self.engine(path))


def _is_at(place: Place, loaded: Loaded | None) -> Loaded | None:
    """The version, if it is loaded with the engine of this place."""
    if loaded is None or loaded.vacant or not isinstance(loaded.engine, HeldEngine):
        return None
    return loaded if loaded.engine.place == place["path"] else None

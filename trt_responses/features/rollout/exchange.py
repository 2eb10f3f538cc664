"""Loads a version beside the one that is served, lets it through the gate, and changes over.

    find ──> look at its files and the room for it ──> load ──> gate ──> point ──> change over

Whatever fails before the pointer moves leaves everything as it was, with the reason in the journal
and in the reply. The pointer moves before the first run does, so that a server that is killed in
between starts with the version that it was about to serve. Where memory does not hold both, the one
is stopped before the other is loaded (`in_place.py`). Knows builds and gates by seams and no HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakSet

from trt_responses.errors import ApiError, InvalidRequest, NotFound, ServerDraining, StartupError
from trt_responses.features.rollout.acts import Acts
from trt_responses.features.rollout.in_place import InPlace
from trt_responses.features.rollout.measures import LoadRefused
from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence

    from trt_responses.features.rollout.acts import Pause
    from trt_responses.features.rollout.bodies import LoadRequest
    from trt_responses.features.rollout.builds import Act, Build, Builds, Judge
    from trt_responses.features.rollout.loaded import Loaded, Version
    from trt_responses.features.rollout.measures import GateReport
    from trt_responses.features.rollout.versions import Versions
    from trt_responses.health.lifecycle import Lifecycle

logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load came to."""

    state: Literal["promoted", "canary", "unchanged"]
    version: Version
    before: Version
    report: GateReport | None = None
    paused: int | None = None
    """The responses that waited while one was stopped and the other loaded; None where both were
    loaded at once."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "version": self.version.label,
            "digest": self.version.digest,
            "before": self.before.label,
            "gate": None if self.report is None else self.report.to_dict(),
            "paused": self.paused,
        }


async def _alone_here() -> None:
    """No other process serves these versions."""


class Exchange(Acts):
    """Makes one change at a time."""

    def __init__(
        self,
        versions: Versions,
        builds: Builds | str,
        new_gate: Callable[[], Judge],
        lifecycle: Lifecycle,
        pause: Pause | None = None,
        changed: Callable[[], Awaitable[None]] = _alone_here,
    ) -> None:
        """In the place of `builds` may stand the reason why there is nothing to load. `pause` is
        None where runs cannot wait. `changed` is awaited after every change of the versions."""
        self._versions = versions
        self._builds = builds
        self._new_gate = new_gate
        self._lifecycle = lifecycle
        self._pause = pause
        self._changed = changed
        self._passed: WeakSet[Loaded] = WeakSet()
        """Those that the gate has let through."""
        self._task: asyncio.Task[Any] | None = None
        """The change that is going on."""
        self.phase: str | None = None
        """What a change is at."""
        self.last: dict[str, Any] | None = None
        """What the last load came to."""

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """A load that is going on at its end is given up; if its pointer is being written just
        then, the next start serves that version."""
        try:
            yield
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)

    async def state(self, name: str) -> dict[str, Any]:
        self._of(name)
        prepared = [version.label for version in await self.prepared()]
        versions = self._versions
        canary = versions.canary
        return {
            "name": name,
            "promoted": _loaded_body(versions.promoted),
            "canary": None if canary is None else _loaded_body(canary) | {"share": versions.share},
            "finishing": [_loaded_body(loaded) for loaded in versions.finishing],
            "loading": self.phase,
            "last_load": self.last,
            "prepared": prepared,
        }

    async def prepared(self) -> Sequence[Version]:
        builds = self._builds
        return () if isinstance(builds, str) else await asyncio.to_thread(builds.versions)

    async def load(self, name: str, wanted: LoadRequest) -> dict[str, Any]:
        builds = self._of(name)
        if self._lifecycle.draining:
            raise ServerDraining("The server is being stopped and loads nothing more.")
        return (await self._alone(self._load(builds, wanted))).to_dict()

    async def _alone(self, change: Coroutine[Any, Any, T]) -> T:
        """Make a change to its end, while there is no other."""
        if self._task is not None and not self._task.done():
            change.close()
            raise LoadRefused(
                f"Another change is going on ({self.phase}): wait until it has ended."
            )
        self._task = task = asyncio.get_running_loop().create_task(change)
        return await asyncio.shield(task)

    async def unload(self, name: str, number: str | None = None) -> str:
        builds, canary = self._of(name), self._versions.canary
        if canary is None or number not in (
            None,
            str(canary.version.number),
            canary.version.digest,
        ):
            raise LoadRefused(
                f"'{self._versions.promoted.version.label}' is the promoted version and is served "
                "to the server's end: only a canary can be unloaded, and "
                + ("none is loaded." if canary is None else f"'{canary.version.label}' is one.")
            )
        return await self._alone(self._unload(builds, canary))

    async def _unload(self, builds: Builds, canary: Loaded) -> str:
        self.phase = f"unloading {canary.version.label}"
        try:
            await self._note(builds, "unloaded", canary.version, "requested")
            if self._versions.canary is canary:
                self._versions.end_canary()
                await self._changed()
            return canary.version.label
        finally:
            self.phase = None

    async def drop_canary(self, why: str) -> None:
        """Unload a canary whose engine is lost, whatever change is going on."""
        builds, canary = self._builds, self._versions.canary
        if canary is not None and not isinstance(builds, str):
            logger.error("unloading %s: %s", canary.version.label, why)
            self._versions.end_canary()
            await self._note(builds, "unloaded", canary.version, why)
            await self._changed()

    def _of(self, name: str) -> Builds:
        builds, served = self._builds, self._versions.promoted.version
        if isinstance(builds, str):
            raise InvalidRequest(builds, code="versions_not_here")
        if name not in (builds.name, served.name):
            raise NotFound(
                f"The engine '{name:.100}' is not served here: this server serves '{builds.name}'.",
                code="engine_not_found",
            )
        return builds

    async def _load(self, builds: Builds, wanted: LoadRequest) -> Outcome:
        try:
            outcome = await self._loaded(builds, wanted)
            self.last = outcome.to_dict()
            return outcome
        except LoadRefused as refused:
            report = refused.report.to_dict() if refused.report is not None else None
            self.last = {"state": "refused", "reason": refused.message, "gate": report}
            raise
        except Exception as fault:
            self.last = {"state": "failed", "reason": f"{type(fault).__name__}: {fault}"}
            raise
        finally:
            self.phase = None

    async def _loaded(self, builds: Builds, wanted: LoadRequest) -> Outcome:
        served = self._versions.promoted.version
        self.phase = "looking for the version"
        try:
            build = await asyncio.to_thread(builds.find, wanted.version, served)
        except StartupError as error:
            raise LoadRefused(str(error)) from None
        version = build.version
        if version == served:
            return await self._unchanged(builds, version, wanted)
        try:
            return await self._exchanged(builds, build, wanted)
        except (ApiError, StartupError, OSError) as fault:
            refused = fault if isinstance(fault, LoadRefused) else LoadRefused(str(fault))
            why = refused.message.removesuffix(".")
            refused.message = f"{version.label} is not served: {why}."
            logger.warning("rejected version %s: %s", version.label, why)
            await self._note(builds, "refused", version, refused.message)
            raise refused from None

    async def _unchanged(self, builds: Builds, served: Version, wanted: LoadRequest) -> Outcome:
        """Nothing but that the pointer, which a command may have moved, says what is served."""
        if wanted.canary is not None:
            raise LoadRefused(f"{served.label} is the promoted version: it cannot be a canary too.")
        try:
            await asyncio.to_thread(builds.promote, served, wanted.reason)
        except StartupError as error:
            raise LoadRefused(
                f"{served.label} is served, but not from the next start on: {error}"
            ) from None
        return Outcome("unchanged", served, served)

    async def _exchanged(self, builds: Builds, build: Build, wanted: LoadRequest) -> Outcome:
        canary = self._versions.canary
        if canary is not None and canary.version == build.version:
            report = await self._judged_canary(canary, wanted)
            return await self._served(builds, canary, wanted, report)
        if (narrow := await self._looked_at(build)) is not None:
            return await self._in_place(builds, build, wanted, narrow)
        loaded, report = await self._through_the_gate(build, wanted)
        try:
            return await self._served(builds, loaded, wanted, report)
        except BaseException:
            if loaded not in self._versions:
                await loaded.stop()
            raise

    async def _judged_canary(self, canary: Loaded, wanted: LoadRequest) -> GateReport | None:
        """What the gate says of a canary that is to be promoted, unless it has passed before."""
        if not canary.able:
            raise LoadRefused("as a canary it serves no more: unload it, and load it again")
        passed = canary in self._passed and not wanted.exact
        if wanted.canary is not None or not wanted.gate or passed:
            return None
        return await self._compared(canary, wanted)

    async def _compared(self, loaded: Loaded, wanted: LoadRequest) -> GateReport:
        """What the gate says of a version that it lets through."""
        promoted = self._versions.promoted
        self.phase = f"comparing {loaded.version.label} with {promoted.version.label}"
        report = await self._new_gate().compare(promoted, loaded, exact=wanted.exact)
        if report.refused is not None:
            raise LoadRefused(report.refused, report)
        self._passed.add(loaded)
        return report

    async def _through_the_gate(
        self, build: Build, wanted: LoadRequest
    ) -> tuple[Loaded, GateReport | None]:
        """The version, loaded and found good; else nothing of it is left."""
        self.phase = f"loading {build.version.label}"
        loaded = await _started(build)
        try:
            return loaded, await self._compared(loaded, wanted) if wanted.gate else None
        except BaseException:
            await loaded.stop()
            raise

    async def _looked_at(self, build: Build) -> str | None:
        """The reason why memory does not hold it beside what is served, if it does not."""
        promoted, label = self._versions.promoted, build.version.label
        self.phase = f"looking at the files of {label}"
        if fault := await asyncio.to_thread(build.fault, promoted.version):
            raise LoadRefused(fault.removesuffix("."))
        return await asyncio.to_thread(build.no_room, promoted.version, beside=True)

    async def _in_place(
        self, builds: Builds, build: Build, wanted: LoadRequest, narrow: str
    ) -> Outcome:
        """Exchange the engine under its runs. `narrow` says why there is no other way."""
        before, version = self._versions.promoted.version, build.version
        if wanted.canary is not None:
            raise LoadRefused(f"{narrow}, and a canary is served beside the promoted version")
        if not wanted.pause:
            raise LoadRefused(f"{narrow}, and what is running was not to be paused")
        if self._pause is None:
            raise LoadRefused(f"{narrow}, and this server lets no response wait for an engine")
        if alone := await asyncio.to_thread(build.no_room, before, beside=False):
            raise LoadRefused(alone)
        back = await asyncio.to_thread(builds.find, before.digest, before)
        gate, promoted = self._new_gate() if wanted.gate else None, self._versions.promoted
        self.phase = f"asking {before.label}, to compare {version.label} with it"
        recorded = await gate.recorded(promoted) if gate is not None else []
        self.phase = f"exchanging {before.label} for {version.label}"

        async def compared(loaded: Loaded) -> GateReport | None:
            if gate is None:
                return None
            return await gate.compare_recorded(recorded, loaded, exact=wanted.exact)

        swap = InPlace(
            self._versions, version.label, partial(_started, build), partial(_started, back)
        )
        try:
            report, paused = await swap.exchange(
                self._pause,
                compared,
                lambda: asyncio.to_thread(builds.promote, version, wanted.reason),
            )
        finally:
            await self._changed()
        logger.info("promoted %s, replacing %s", version.label, before.label)
        await self._note(builds, "loaded", version, wanted.reason)
        return Outcome("promoted", version, before, report, paused)

    async def _served(
        self, builds: Builds, loaded: Loaded, wanted: LoadRequest, report: GateReport | None
    ) -> Outcome:
        before, version = self._versions.promoted.version, loaded.version
        if wanted.canary is not None:
            share = f"{wanted.canary:.0%} of the conversations"
            other = self._versions.canary
            await self._note(builds, "canary", version, wanted.reason or share)
            self._versions.try_out(loaded, wanted.canary)
            await self._changed()
            if other is not None and other is not loaded:
                why = f"{version.label} is the canary in its place"
                await self._note(builds, "unloaded", other.version, why)
            return Outcome("canary", version, before, report)
        self.phase = f"changing over to {version.label}"
        await asyncio.to_thread(builds.promote, version, wanted.reason)
        self._versions.promote(loaded)
        await self._changed()
        logger.info("promoted %s, replacing %s", version.label, before.label)
        await self._note(builds, "loaded", version, wanted.reason)
        return Outcome("promoted", version, before, report)

    async def _note(self, builds: Builds, act: Act, version: Version, reason: str) -> None:
        """Note it in the journal; one that cannot be written is no reason to break what is
        served."""
        try:
            await asyncio.to_thread(builds.note, act, version, reason)
        except StartupError as error:
            logger.error("could not write journal entry: %s %s: %s", version.label, act, error)


async def _started(build: Build) -> Loaded:
    """The version with its engine, which is started."""
    loaded = await asyncio.to_thread(build.load)
    try:
        await loaded.start()
    except asyncio.CancelledError:  # the server ends
        await loaded.stop(0)
        raise
    return loaded


def _loaded_body(loaded: Loaded) -> dict[str, Any]:
    version, health = loaded.version, loaded.health()
    return {
        "version": version.label,
        "digest": version.digest,
        "runs": loaded.runs,
        "ready": health.alive and health.ready,
    }

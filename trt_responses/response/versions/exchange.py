"""Loads a version beside the one that is served, lets it through the gate, and changes over.

    find ──> look at its files and the room for it ──> load ──> gate ──> point ──> change over

Whatever fails before the pointer moves leaves everything as it was, with the reason in the journal
and in the reply. The pointer moves before the first run does, so that a server that is killed in
between starts with the version that it was about to serve. Knows builds by a seam; knows no HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from trt_responses.errors import ApiError, InvalidRequest, NotFound, ServerDraining, StartupError
from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from trt_responses.response.lifecycle import Lifecycle
    from trt_responses.response.versions.gate import Gate, GateReport
    from trt_responses.response.versions.versions import Loaded, Version, Versions
    from trt_responses.wire.versions import LoadRequest

logger = logging.getLogger(__name__)

Act = Literal["loaded", "refused", "canary", "unloaded"]
"""What is noted in the journal besides promotions."""


class Build(Protocol):
    """A version that is prepared, and not loaded yet."""

    @property
    def version(self) -> Version: ...

    def fault(self, beside: Version) -> str | None:
        """Why it cannot be loaded beside that one: its files, this machine, or the memory."""
        ...

    def load(self) -> Loaded:
        """It with its engine, which is not started."""
        ...


class Builds(Protocol):
    """The prepared versions of the served engine. Every method may block, and raises a
    `StartupError` with one sentence."""

    @property
    def name(self) -> str: ...

    def versions(self) -> Sequence[Version]:
        """All that could be loaded, the newest first."""
        ...

    def find(self, wanted: str | None, served: Version) -> Build:
        """The one asked for; else the promoted one if it is not served, else the newest."""
        ...

    def promote(self, version: Version, reason: str) -> None: ...

    def note(self, act: Act, version: Version, reason: str) -> None: ...


class LoadRefused(ApiError):
    """The version is not served; the one before goes on."""

    status = 409
    type = "invalid_request_error"
    code = "version_refused"

    def __init__(self, message: str, report: GateReport | None = None) -> None:
        super().__init__(message)
        self.report = report


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load came to."""

    state: Literal["promoted", "canary", "unchanged"]
    version: Version
    before: Version
    report: GateReport | None = None

    def told(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "version": self.version.label,
            "digest": self.version.digest,
            "before": self.before.label,
            "gate": None if self.report is None else self.report.told(),
        }


class Exchange:
    """The one who changes which versions a server has loaded; one change at a time."""

    def __init__(
        self,
        versions: Versions,
        builds: Builds | str,
        new_gate: Callable[[], Gate],
        lifecycle: Lifecycle,
    ) -> None:
        """In the place of `builds` may stand the reason why there is nothing to load."""
        self._versions = versions
        self._builds = builds
        self._new_gate = new_gate
        self._lifecycle = lifecycle
        self._task: asyncio.Task[Outcome] | None = None
        self.phase: str | None = None
        """What a load is at."""
        self.last: dict[str, Any] | None = None
        """What the last load came to."""

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """While it lasts versions may be loaded; a load that is going on at its end is given up."""
        try:
            yield
        finally:
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)

    def told(self, name: str) -> dict[str, Any]:
        """Which versions are loaded, and what becomes of another."""
        self._of(name)
        versions = self._versions
        canary = versions.canary
        return {
            "name": name,
            "promoted": _told(versions.promoted),
            "canary": None if canary is None else _told(canary) | {"share": versions.share},
            "finishing": [_told(loaded) for loaded in versions.finishing],
            "loading": self.phase,
            "last_load": self.last,
        }

    async def prepared(self) -> Sequence[Version]:
        """The versions that could be loaded, the newest first."""
        builds = self._builds
        return () if isinstance(builds, str) else await asyncio.to_thread(builds.versions)

    async def load(self, name: str, asked: LoadRequest) -> Outcome:
        """Load a version; it goes on to its end though nobody waits for it any more."""
        builds = self._of(name)
        if self._lifecycle.draining:
            raise ServerDraining("The server is being stopped and loads nothing more.")
        if self._task is not None and not self._task.done():
            raise LoadRefused(f"Another load is going on ({self.phase}): wait until it has ended.")
        self._task = asyncio.get_running_loop().create_task(self._load(builds, asked))
        return await asyncio.shield(self._task)

    async def unload(self, name: str, number: str | None = None) -> Version:
        """End a canary; the promoted version is served to the end."""
        builds, canary = self._of(name), self._versions.canary
        named = canary is not None and number in (
            None,
            str(canary.version.number),
            canary.version.digest,
        )
        if canary is None or not named:
            raise LoadRefused(
                f"'{self._versions.promoted.version.label}' is the promoted version and is served "
                "to the server's end: only a canary can be unloaded, and "
                + ("none is loaded." if canary is None else f"'{canary.version.label}' is one.")
            )
        await self._note(builds, "unloaded", canary.version, "it was asked for")
        if self._versions.canary is canary:
            self._versions.end_canary()
        return canary.version

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

    async def _load(self, builds: Builds, asked: LoadRequest) -> Outcome:
        try:
            outcome = await self._loaded(builds, asked)
            self.last = outcome.told()
            return outcome
        except LoadRefused as refused:
            report = refused.report.told() if refused.report is not None else None
            self.last = {"state": "refused", "reason": refused.message, "gate": report}
            raise
        finally:
            self.phase = None

    async def _loaded(self, builds: Builds, asked: LoadRequest) -> Outcome:
        served = self._versions.promoted.version
        self.phase = "looking for the version"
        try:
            build = await asyncio.to_thread(builds.find, asked.version, served)
        except StartupError as error:
            raise LoadRefused(str(error)) from None
        version = build.version
        if version == served:
            return Outcome("unchanged", version, served)
        if (loaded := self._canary_of(version)) is not None:
            return await self._served(builds, loaded, asked, None)
        try:
            loaded, report = await self._through_the_gate(build, asked)
        except LoadRefused as refused:
            refused.message = f"{version.label} is not served: {refused.message}."
            logger.warning("%s", refused.message)
            await self._note(builds, "refused", version, refused.message)
            raise
        try:
            return await self._served(builds, loaded, asked, report)
        except BaseException:
            if loaded not in self._versions:
                await loaded.stop()
            raise

    def _canary_of(self, version: Version) -> Loaded | None:
        canary = self._versions.canary
        return canary if canary is not None and canary.version == version else None

    async def _through_the_gate(
        self, build: Build, asked: LoadRequest
    ) -> tuple[Loaded, GateReport | None]:
        """The version, loaded and found good; else nothing of it is left."""
        promoted, label = self._versions.promoted, build.version.label
        self.phase = f"looking at the files of {label}"
        if fault := await asyncio.to_thread(build.fault, promoted.version):
            raise LoadRefused(fault.removesuffix("."))
        self.phase = f"loading {label}"
        loaded = await asyncio.to_thread(build.load)
        try:
            await loaded.start()
        except StartupError as error:
            raise LoadRefused(str(error).removesuffix(".")) from None
        try:
            if not asked.gate:
                return loaded, None
            self.phase = f"comparing {label} with {promoted.version.label}"
            report = await self._new_gate().compare(promoted, loaded, exact=asked.exact)
            if report.refused is not None:
                raise LoadRefused(report.refused, report)
        except BaseException:
            await loaded.stop()
            raise
        return loaded, report

    async def _served(
        self, builds: Builds, loaded: Loaded, asked: LoadRequest, report: GateReport | None
    ) -> Outcome:
        before, version = self._versions.promoted.version, loaded.version
        if asked.canary is not None:
            share = f"{asked.canary:.0%} of the conversations"
            await self._note(builds, "canary", version, asked.reason or share)
            self._versions.try_out(loaded, asked.canary)
            return Outcome("canary", version, before, report)
        self.phase = f"changing over to {version.label}"
        try:
            await asyncio.to_thread(builds.promote, version, asked.reason)
        except StartupError as error:
            raise LoadRefused(f"{version.label} is not served: {error}") from None
        self._versions.promote(loaded)
        logger.info("%s is served in place of %s", version.label, before.label)
        await self._note(builds, "loaded", version, asked.reason)
        return Outcome("promoted", version, before, report)

    async def _note(self, builds: Builds, act: Act, version: Version, reason: str) -> None:
        """In the journal; one that cannot be written is no reason to break what is served."""
        try:
            await asyncio.to_thread(builds.note, act, version, reason)
        except StartupError as error:
            logger.error("the journal misses that %s was %s: %s", version.label, act, error)


def _told(loaded: Loaded) -> dict[str, Any]:
    version, health = loaded.version, loaded.engine.health()
    return {
        "version": version.label,
        "digest": version.digest,
        "runs": loaded.runs,
        "ready": health.alive and health.ready,
    }

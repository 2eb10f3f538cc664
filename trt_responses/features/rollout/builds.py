"""The seams of an exchange: the prepared versions, and the gate that judges one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.features.rollout.loaded import Loaded, Version
    from trt_responses.features.rollout.measures import GateReport, Took

Act = Literal["loaded", "refused", "canary", "unloaded"]
"""What is noted in the journal besides promotions."""


class Build(Protocol):
    """A version that is prepared, and not loaded yet."""

    @property
    def version(self) -> Version: ...

    def fault(self, beside: Version) -> str | None:
        """Why it cannot be loaded where that one is served: its files, or this machine."""
        ...

    def no_room(self, served: Version, *, beside: bool) -> str | None:
        """Why memory does not hold it beside the served one; else, in the place of that."""
        ...

    def load(self) -> Loaded:
        """A version with its engine, which is not started."""
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
        """The requested one; else the promoted one if it is not served, else the newest."""
        ...

    def promote(self, version: Version, reason: str) -> None: ...

    def note(self, act: Act, version: Version, reason: str) -> None: ...


class Judge(Protocol):
    """A gate: compares a version with the served one."""

    async def compare(self, old: Loaded, new: Loaded, *, exact: bool = False) -> GateReport: ...

    async def recorded(self, old: Loaded) -> Sequence[Took]: ...

    async def compare_recorded(
        self, recorded: Sequence[Took], new: Loaded, *, exact: bool = False
    ) -> GateReport: ...

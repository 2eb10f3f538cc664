"""What the admin's routes call: the versions of this server, or of the fleet it is part of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from trt_responses.features.rollout.bodies import LoadRequest
from trt_responses.features.rollout.gate import Gate
from trt_responses.features.rollout.loaded import Loaded, Version
from trt_responses.features.rollout.versions import Versions
from trt_responses.web.shared import Shared

Pause = Callable[[Loaded], Awaitable[int]]
"""Takes a version's runs from its engine, until another is in its place. Returns how many."""
NewActs = Callable[[Versions, Callable[[], Gate], Pause | None], "Acts"]
"""Makes the acts of a front end, which follows what its fleet decides."""


class Acts(ABC):
    """Loads, promotes and unloads engine versions."""

    @abstractmethod
    def life(self) -> AbstractAsyncContextManager[None]:
        """While it lasts versions may be loaded."""

    @abstractmethod
    async def state(self, name: str) -> dict[str, Any]:
        """The versions that are loaded, and what becomes of another."""

    @abstractmethod
    async def prepared(self) -> Sequence[Version]:
        """The versions that could be loaded, the newest first."""

    @abstractmethod
    async def load(self, name: str, wanted: LoadRequest) -> dict[str, Any]:
        """Load a version, and return what it came to. Raises a `LoadRefused`. The load continues
        to its end without its client."""

    @abstractmethod
    async def unload(self, name: str, number: str | None = None) -> str:
        """End a canary, and return its label."""


def acts_of(shared: Shared) -> Acts:
    """The acts of this server."""
    acts = shared.by_class[Acts]
    assert isinstance(acts, Acts)
    return acts

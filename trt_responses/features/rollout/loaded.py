"""One version of an engine as long as it is loaded, and the leases of the runs that it makes.

If memory holds one version only, another one replaces it while the runs wait: they see that their
engine was exchanged, and meanwhile the place is empty. Knows the engine's seam; knows of no other
version.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from typing import Any
from urllib.parse import quote

from trt_responses.engine import Chunk, Engine, GenerateOptions, Handle, Health, Limits, Sink
from trt_responses.frozen import dataclass
from trt_responses.run.parts import Parts

logger = logging.getLogger(__name__)

STOP_S = 5.0
"""What a version gets for its end, when it has no runs left."""
MARKED_ID = re.compile(r"resp_([0-9a-f]{6})(?:[0-9A-Za-z]{22}|[0-9a-f]{48})")
"""The id of a response with its version's number; ids had 48 digits before they had 22 letters."""


@dataclass(frozen=True)
class Version:
    """One version of an engine, as clients and metrics name it."""

    name: str
    kind: str
    number: int | None = None
    """From 1 on; None for an engine that was not prepared here, or before there were numbers."""
    digest: str = ""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What asks for this very version: `name@3` and `name@<digest>`."""
        parts = (self.number, self.digest)
        return tuple(f"{self.name}@{part}" for part in parts if part)

    @cached_property
    def label(self) -> str:
        return next(iter(self.names), self.name)

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The header that names it, if it has a number or a digest."""
        return {"x-trt-engine": quote(self.label, safe="@")} if "@" in self.label else {}

    def marked(self, response_id: str) -> str:
        """The id of a response that this version makes, from a fresh id."""
        if self.number is None:
            return response_id
        prefix, _, rest = response_id.partition("_")
        return f"{prefix}_{self.number:06x}{rest}"


def number_in(response_id: str) -> int | None:
    """The number of the version that has made a response, if its id says one."""
    found = MARKED_ID.fullmatch(response_id)
    return int(found[1], 16) if found else None


class Loaded:
    """A version that is loaded, behind the engine's seam, and how many runs are its own."""

    def __init__(
        self,
        version: Version,
        engine: Engine,
        hold: Callable[[], AbstractContextManager[object]] | None = None,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        """`hold` is entered while the engine lives; `card` describes the engine."""
        self.version = version
        self.card = {"kind": version.kind} if card is None else card
        self.runs = 0
        self._hold = hold
        self._held = ExitStack()
        self._idle: asyncio.Event | None = None
        """Set when no run is its own any more, for those who wait for that."""
        self._away: _Away | None = None
        self._take(engine)

    def _take(self, engine: Engine) -> None:
        """Have what the engine's seam says done by this engine, at once."""
        self.engine = engine
        self.generate, self.health, self.limits = engine.generate, engine.health, engine.limits

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of its adapters."""
        return self.limits().adapters

    def has(self, adapter: str | None) -> bool:
        return adapter is None or adapter in self.adapters

    async def start(self) -> None:
        if self._hold is not None:
            self._held.enter_context(self._hold())
        try:
            await self.engine.start()
        except BaseException:
            self._held.close()
            raise

    async def stop(self, deadline_s: float = STOP_S) -> None:
        if self._away is not None and self._away.stopped:
            return
        try:
            await self.engine.stop(deadline_s)
        finally:
            self._held.close()
        if self._away is not None:
            self._away.stopped = True

    # --- how another version takes its place ----------------------------------------------------

    def leave(self, reason: str) -> None:
        """Take nothing more, since another version is to be in this place. Runs that ask wait."""
        away = self._away = _Away(reason, self.engine.health(), self.engine.limits())
        self.generate, self.health, self.limits = away.generate, away.health, away.limits

    def become(self, other: Loaded) -> None:
        """Be the other version from now on, with the runs that are here."""
        self.version, self.card = other.version, other.card
        self._hold, self._held = other._hold, other._held
        self._away = None
        self._take(other.engine)

    def lose(self, reason: str) -> None:
        """Say that no version comes into this place any more."""
        if self._away is not None:
            self._away.reason, self._away.lost = reason, True

    @property
    def vacant(self) -> bool:
        """Whether it was left, and no version is in its place yet."""
        return self._away is not None

    @property
    def able(self) -> bool:
        """Whether its engine takes requests now."""
        health = self.health()
        return health.alive and health.ready

    # --- its runs -------------------------------------------------------------------------------

    async def idle(self) -> None:
        """When no run is its own."""
        while self.runs:
            self._idle = self._idle or asyncio.Event()
            await self._idle.wait()
            self._idle = None

    def lease(self, gone: str | None = None) -> Lease:
        self.runs += 1
        return Lease(self, gone)

    def released(self) -> None:
        self.runs -= 1
        if not self.runs and self._idle is not None:
            self._idle.set()


class _Away:
    """The engine of a place while no version is in it."""

    def __init__(self, reason: str, last: Health, limits: Limits) -> None:
        self.reason = reason
        self.stopped = False
        """Whether the engine that was there is stopped."""
        self.lost = False
        self._last, self._limits = last, limits

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        return _Lost(sink, self.reason)

    def health(self) -> Health:
        return Health(not self.lost, False, self._last.last_progress_ns, self.reason)

    def limits(self) -> Limits:
        return self._limits


class _Lost:
    """A request to a place that no version is in: it may go on when there is one."""

    def __init__(self, sink: Sink, reason: str) -> None:
        chunk = Chunk(finish="error", error=reason, lost="exchanged")
        self._call = asyncio.get_running_loop().call_soon(sink.push, chunk)

    def abort(self) -> None:
        self._call.cancel()


class Lease:
    """One run's hold on its version, until it is released."""

    parts: Parts
    """Those of every run on that version. Set for a run by `leases.py`."""

    def __init__(self, loaded: Loaded, gone: str | None) -> None:
        self.loaded = loaded
        self.gone = gone
        """The version that made what it continues, if that is not loaded any more."""
        self._held = True

    def headers(self) -> Mapping[str, str]:
        version = self.loaded.version
        if self.gone is None:
            return version.headers
        return {**version.headers, "x-trt-engine-gone": quote(self.gone, safe="@")}

    def release(self) -> None:
        if self._held:
            self._held = False
            self.loaded.released()

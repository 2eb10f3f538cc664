"""The versions of an engine that a server has loaded, and which of them makes a response.

    promoted    takes every new run that is nobody else's
    canary      takes a share of the conversations
    finishing   takes nothing new, ends its own runs, and is stopped then

A run keeps its version to its end, and its response's id says which it was, so that a conversation
stays with one version as long as that is loaded. Where memory does not hold two, another version
takes the place of the promoted one under its runs, which wait meanwhile. To all others this is one
engine: the promoted one. Knows the engine's seam; knows no file and no HTTP.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses.engine.base import Chunk, Health
from trt_responses.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from trt_responses.engine.base import Engine, GenerateOptions, Handle, Limits, Sink

logger = logging.getLogger(__name__)

STOP_S = 5.0
"""What a version gets for its end, when it has no runs left."""
MARKED_ID = re.compile(r"resp_([0-9a-f]{6})[0-9a-f]{48}")


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an engine, as clients and metrics name it."""

    name: str
    kind: str
    number: int | None = None
    """From 1 on; None for an engine that was not prepared here, or before there were numbers."""
    digest: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """What asks for this very version: `name@3` and `name@<digest>`."""
        parts = (self.number, self.digest)
        return tuple(f"{self.name}@{part}" for part in parts if part)

    @property
    def label(self) -> str:
        return next(iter(self.names), self.name)

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


class Asked(NamedTuple):
    """What of a request decides which version makes its response."""

    model: str = ""
    previous: str | None = None
    """The id of the response that it continues."""
    root: str | None = None
    """What stays the same within a conversation: its id, a cache key or a session's id."""
    adapter: str | None = None
    """The adapter that is to answer."""


class Loaded:
    """A version that is loaded, behind the engine's seam, and how many runs are its own."""

    def __init__(
        self,
        version: Version,
        engine: Engine,
        hold: Callable[[], AbstractContextManager[object]] | None = None,
        card: Mapping[str, Any] | None = None,
    ) -> None:
        """What is held by `hold` is held while the engine lives; `card` is what is told of it."""
        self.version = version
        self.card = {"kind": version.kind} if card is None else card
        self.engine = engine
        self.runs = 0
        self._hold = hold
        self._held = ExitStack()
        self._idle = asyncio.Event()
        self._idle.set()
        self._away: _Away | None = None

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
        self._away = _Away(reason, self.engine.health(), self.engine.limits())

    def become(self, other: Loaded) -> None:
        """Be the other version from now on, with the runs that are here."""
        self.version, self.card, self.engine = other.version, other.card, other.engine
        self._hold, self._held = other._hold, other._held
        self._away = None

    def lose(self, reason: str) -> None:
        """Say that no version comes into this place any more."""
        if self._away is not None:
            self._away.reason, self._away.lost = reason, True

    # --- the engine's seam ----------------------------------------------------------------------

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        if self._away is not None:
            return _Lost(sink, self._away.reason)
        return self.engine.generate(prompt_ids, options, sink)

    def health(self) -> Health:
        return self.engine.health() if self._away is None else self._away.health()

    def limits(self) -> Limits:
        return self.engine.limits() if self._away is None else self._away.limits

    # --- its runs -------------------------------------------------------------------------------

    async def idle(self) -> None:
        """When no run is its own."""
        await self._idle.wait()

    def lease(self, gone: str | None = None) -> Lease:
        self.runs += 1
        self._idle.clear()
        return Lease(self, gone)

    def released(self) -> None:
        self.runs -= 1
        if not self.runs:
            self._idle.set()


class _Away:
    """What is told of a place while no version is in it."""

    def __init__(self, reason: str, last: Health, limits: Limits) -> None:
        self.reason = reason
        self.limits = limits
        self.stopped = False
        """Whether the engine that was there is stopped."""
        self.lost = False
        self._last = last

    def health(self) -> Health:
        return Health(not self.lost, False, self._last.last_progress_ns, self.reason)


class _Lost:
    """A request to a place that no version is in: it may go on when there is one."""

    def __init__(self, sink: Sink, reason: str) -> None:
        chunk = Chunk(finish="error", error=reason, lost="exchanged")
        self._call = asyncio.get_running_loop().call_soon(sink.push, chunk)

    def abort(self) -> None:
        self._call.cancel()


class Lease:
    """One run's hold on its version, until it is released."""

    def __init__(self, loaded: Loaded, gone: str | None) -> None:
        self.loaded = loaded
        self.gone = gone
        """The version that made what it continues, if that is not loaded any more."""
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            self.loaded.released()


class Versions:
    """All that are loaded, behind the engine's seam."""

    def __init__(self, first: Loaded) -> None:
        self.promoted = first
        self.canary: Loaded | None = None
        self.share = 0.0
        """Of the conversations, the canary's."""
        self.gone = 0
        """Responses that continued one of a version that is not loaded any more."""
        self._finishing: dict[Loaded, asyncio.Task[None]] = {}
        self._cards = {first.version.number: first.card}

    def __iter__(self) -> Iterator[Loaded]:
        """Those that take new runs, the promoted one first."""
        yield self.promoted
        if self.canary is not None:
            yield self.canary

    def live(self) -> tuple[Version, ...]:
        return tuple(loaded.version for loaded in self)

    def card_of(self, response_id: str) -> Mapping[str, Any]:
        """What is told of the engine that made a response."""
        return self._cards.get(number_in(response_id), self.promoted.card)

    @property
    def finishing(self) -> tuple[Loaded, ...]:
        return tuple(self._finishing)

    # --- which version makes a response ---------------------------------------------------------

    def lease(self, asked: Asked, fresh_id: str) -> Lease:
        """The version that a new run has to its end, one that has its adapter. `fresh_id` decides
        where nothing else does."""
        for loaded in self:
            if asked.model in loaded.version.names:
                return loaded.lease()
        having = [loaded for loaded in self if loaded.has(asked.adapter)]
        usual = next(iter(having), self.promoted)
        number = number_in(asked.previous) if asked.previous else None
        if number is not None:
            for loaded in self:
                if loaded.version.number == number and (loaded is self.promoted or _able(loaded)):
                    return (loaded if loaded in having else usual).lease()
            self.gone += 1
            return usual.lease(f"{self.promoted.version.name}@{number}")
        canary = self.canary
        if canary in having and _able(canary) and _lot(asked.root or fresh_id) < self.share:
            return canary.lease()
        return usual.lease()

    # --- how that changes -----------------------------------------------------------------------

    def promote(self, loaded: Loaded) -> None:
        """New runs go there from now on; the one before ends its own and stops."""
        before, self.promoted = self.promoted, loaded
        self._cards[loaded.version.number] = loaded.card
        if self.canary is loaded:
            self.canary, self.share = None, 0.0
        self._finish(before)

    def put_in_place(self, loaded: Loaded) -> None:
        """The promoted place, which was left, is this version's from now on, with its runs."""
        self.promoted.become(loaded)
        self._cards[loaded.version.number] = loaded.card

    def try_out(self, loaded: Loaded, share: float) -> None:
        """Give it a share of the conversations. Another canary ends its own and stops."""
        before, self.canary, self.share = self.canary, loaded, share
        self._cards[loaded.version.number] = loaded.card
        if before is not None and before is not loaded:
            self._finish(before)

    def end_canary(self) -> None:
        if (before := self.canary) is not None:
            self.canary, self.share = None, 0.0
            self._finish(before)

    def _finish(self, loaded: Loaded) -> None:
        task = asyncio.get_running_loop().create_task(self._finished(loaded))
        self._finishing[loaded] = task

    async def _finished(self, loaded: Loaded) -> None:
        await loaded.idle()
        try:
            await loaded.stop()
            logger.info("%s has ended its runs and is stopped", loaded.version.label)
        except Exception:
            logger.exception("%s could not be stopped in order", loaded.version.label)
        finally:
            self._finishing.pop(loaded, None)

    # --- the engine's seam ----------------------------------------------------------------------

    async def start(self) -> None:
        await self.promoted.start()

    async def stop(self, deadline_s: float) -> None:
        """Stop all that are loaded. An engine that has never started is stopped too."""
        loaded = (*self, *self._finishing)
        for task in self._finishing.values():
            task.cancel()
        await asyncio.gather(*self._finishing.values(), return_exceptions=True)
        self._finishing.clear()
        results = await asyncio.gather(
            *(each.stop(deadline_s) for each in loaded), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        return self.promoted.generate(prompt_ids, options, sink)

    def health(self) -> Health:
        """The promoted one's. Whichever of them has made a step, the server has."""
        own, promoted = self.promoted.health(), self.promoted
        others = [each for each in (*self, *self._finishing) if each is not promoted]
        if not others:
            return own
        latest = max(each.health().last_progress_ns for each in others)
        return replace(own, last_progress_ns=max(own.last_progress_ns, latest))

    def limits(self) -> Limits:
        return self.promoted.limits()


def _able(loaded: Loaded) -> bool:
    health = loaded.health()
    return health.alive and health.ready


def _lot(root: str) -> float:
    """A number from 0 to 1, the same for a conversation on every server."""
    digest = hashlib.blake2b(root.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64

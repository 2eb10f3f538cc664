"""The versions of an engine that a server has loaded, and which of them makes a response.

    promoted    takes every new run that no other version has
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trt_responses.engine import GenerateOptions, Handle, Health, Limits, Sink
from trt_responses.features.rollout.loaded import Lease, Loaded, Version, number_in

logger = logging.getLogger(__name__)


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
        """The card of the engine that made a response."""
        return self._cards.get(number_in(response_id), self.promoted.card)

    @property
    def finishing(self) -> tuple[Loaded, ...]:
        return tuple(self._finishing)

    # --- which version makes a response ---------------------------------------------------------

    def lease(self, model: str, previous: str | None, root: str, adapter: str | None) -> Lease:
        """The version that a new run has to its end, one that has its adapter. `previous`: the id
        of the response that it continues. `root` stays the same within a conversation: its id, a
        cache key or a session's id; else it is fresh."""
        number = number_in(previous) if previous else None
        if self.canary is None and number in (None, self.promoted.version.number):
            return self.promoted.lease()
        for loaded in self:
            if model in loaded.version.names:
                return loaded.lease()
        having = [loaded for loaded in self if loaded.has(adapter)]
        usual = next(iter(having), self.promoted)
        if number is not None:
            for loaded in self:
                if loaded.version.number == number and (loaded is self.promoted or loaded.able):
                    return (loaded if loaded in having else usual).lease()
            self.gone += 1
            return usual.lease(f"{self.promoted.version.name}@{number}")
        canary = self.canary
        if canary in having and canary.able and _share(root) < self.share:
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
            logger.info("stopped %s: drained", loaded.version.label)
        except Exception:
            logger.exception("failed to shut down %s cleanly", loaded.version.label)
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
        own = self.promoted.health()
        if self.canary is None and not self._finishing:
            return own
        latest = max(each.health().last_progress_ns for each in (*self, *self._finishing))
        return replace(own, last_progress_ns=latest)

    def limits(self) -> Limits:
        return self.promoted.limits()


def _share(root: str) -> float:
    """A number from 0 to 1, the same for a conversation on every server."""
    digest = hashlib.blake2b(root.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64

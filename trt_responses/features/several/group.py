"""The engines of one model, behind the engine's seam.

A request goes where the beginning of its prompt is warm, unless that engine is full or much busier
than another one; else to the least loaded. An engine that goes away loses its requests as any does,
and the runs go on at another one from their ids. Knows the engine's seam; knows no run and no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import is_

from trt_responses.engine import EXTRAS, GenerateOptions, GuideKind, Handle, Health, Limits, Sink
from trt_responses.errors import EngineUnavailable, StartupError
from trt_responses.features.several.prefixes import blocks_of
from trt_responses.features.several.replica import Replica

BUSIER = 0.75
"""The share of its places by which a warm engine may be busier than the least loaded one."""
LEAST_BLOCKS, WORTH_BLOCKS = 2, 16
"""The blocks that an engine must know beyond the others: the first, if they are half of what is
left, else the second. Else all that begins with the same instructions would meet at one engine."""
REMEMBERED = 4096
"""The newest responses of which is known which engines made them."""


class Group:
    """The replicas of one model."""

    def __init__(self, model: str, replicas: Sequence[Replica]) -> None:
        self.model = model
        self.replicas = replicas
        self.affinity = len(replicas) > 1
        """Without it requests go to the least loaded engine."""
        self._starting: list[asyncio.Task[None]] = []
        self._made: dict[str, list[str]] = {}
        self._limits_of: list[Limits] = []
        self._limits = Limits(0, 0)

    def made(self, response_id: str) -> Sequence[str]:
        """The labels of the engines that have made a response, in order."""
        return self._made.get(response_id, ())

    # --- the engine's seam ----------------------------------------------------------------------

    async def start(self) -> None:
        """Return when one engine has started; the others are started meanwhile. Raises the first
        fault when none can be."""
        first = [asyncio.create_task(each.start()) for each in self.replicas]
        self._starting = first
        faults: list[StartupError] = []
        for ended in asyncio.as_completed(first):
            try:
                await ended
            except StartupError as error:
                faults.append(error)
            else:
                break
        else:
            raise faults[0]
        self._starting = [
            asyncio.create_task(self._started(replica, task))
            for replica, task in zip(self.replicas, first, strict=True)
        ]

    async def _started(self, replica: Replica, first: asyncio.Task[None]) -> None:
        """Wait for the first start of an engine, and start it again if that fails."""
        try:
            await first
        except StartupError as error:
            await replica.start_again(error)

    async def stop(self, deadline_s: float) -> None:
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        stops = (each.stop(deadline_s) for each in self.replicas)
        for result in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        blocks = blocks_of(prompt_ids, options.salt) if self.affinity else []
        fault: EngineUnavailable | None = None
        for replica in self._ranked(blocks):
            try:
                handle = replica.generate(prompt_ids, blocks, options, sink)
            except EngineUnavailable as error:  # it has gone away, and its health does not say so
                fault = fault or error
            else:
                self._note(options.request_id, replica.label)
                return handle
        raise fault or EngineUnavailable(self.health().reason or "", retry_after_s=1)

    def look(self) -> None:
        """Move the requests of an engine whose process has died, while another engine can have
        them: loading the model again may take minutes."""
        if any(each.able for each in self.replicas):
            for replica in self.replicas:
                replica.move()

    def _ranked(self, blocks: Sequence[int]) -> list[Replica]:
        """The engines that may take a prompt, the best first."""
        able = [each for each in self.replicas if each.able]
        if not able:  # one that restarts may take the requests of runs that it has begun
            return [each for each in self.replicas if each.engine and not each.draining]
        if len(able) == 1:
            return able
        warm = {each: each.warm(blocks) for each in able}
        everywhere = min(warm.values())
        least = min(each.load for each in able)

        def rank(replica: Replica) -> tuple[int, float, int]:
            load, gain = replica.load, warm[replica] - everywhere
            free = load < 1 and load - least <= BUSIER
            half = gain >= LEAST_BLOCKS and 2 * gain >= len(blocks) - everywhere
            worth = gain >= WORTH_BLOCKS or half
            return (-gain if free and worth else 0, load, replica.requests)

        return sorted(able, key=rank)

    def _note(self, response_id: str, label: str) -> None:
        if not response_id:  # a request of the server's own
            return
        made = self._made.setdefault(response_id, [])
        if not made or made[-1] != label:
            made.append(label)
        if len(self._made) > REMEMBERED:
            del self._made[next(iter(self._made))]

    def health(self) -> Health:
        """Ready while one engine takes requests, and alive while one can recover."""
        found = [each.health() for each in self.replicas]
        ready = any(each.able for each in self.replicas)
        uses = [each.cache_use for each in found if each.cache_use is not None]
        queued = [each.queued for each in found if each.queued is not None]
        return Health(
            alive=any(each.alive for each in found),
            ready=ready,
            last_progress_ns=max(each.last_progress_ns for each in found),
            reason=None if ready else self._reason(found),
            cache_use=sum(uses) / len(uses) if uses else None,
            queued=sum(queued) if queued else None,
            restarts=sum(each.restarts for each in found),
        )

    def _reason(self, found: Sequence[Health]) -> str:
        reasons = [
            f"{replica.label}: {'draining' if replica.draining else health.reason or 'not ready'}"
            for replica, health in zip(self.replicas, found, strict=True)
        ]
        return "; ".join(reason.removesuffix(".") for reason in reasons)

    def limits(self) -> Limits:
        """What every engine can, with the places of those that take requests now."""
        started = [each for each in self.replicas if each.engine is not None]
        counted = [each for each in started if each.able] or started
        found = [each.engine.limits() for each in counted if each.engine is not None]
        if len(found) != len(self._limits_of) or not all(map(is_, found, self._limits_of)):
            self._limits_of, self._limits = found, _common(found)
        return self._limits


def _common(found: Sequence[Limits]) -> Limits:
    if len(found) < 2:
        return found[0] if found else Limits(0, 0)
    longest = [each.longest_prompt for each in found if each.longest_prompt is not None]
    return Limits(
        context_tokens=min(each.context_tokens for each in found),
        max_batch=sum(each.max_batch for each in found),
        guides=_guides(found),
        max_logprobs=min(each.max_logprobs for each in found),
        longest_prompt=min(longest, default=None),
        ignores=frozenset().union(*(each.ignores for each in found)),
        extras=frozenset(EXTRAS).intersection(*(each.extras for each in found)),
        adapters=tuple(
            name for name in found[0].adapters if all(name in each.adapters for each in found)
        ),
    )


def _guides(found: Sequence[Limits]) -> dict[GuideKind, frozenset[int]]:
    """The kinds of guides that all have, each with the ids by which all of them may end one."""
    kinds = set(found[0].guides).intersection(*(each.guides for each in found))
    return {
        kind: frozenset.intersection(*(each.guides[kind] for each in found))
        for kind in sorted(kinds)
    }

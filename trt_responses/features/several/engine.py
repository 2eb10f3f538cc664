"""All the models of a server behind the engine's seam, the first one in front."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from trt_responses.features.several.group import Group
from trt_responses.features.several.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from trt_responses.dialect import Dialect
    from trt_responses.engine import Engine, GenerateOptions, Handle, Health, Limits, Sink
    from trt_responses.features.several.spec import Entry


def several(
    entries: Sequence[Entry],
    new_engine: Callable[[str], Engine],
    dialects: Mapping[str, Dialect],
) -> SeveralEngines:
    """The engines that a setting lists; `new_engine` makes one from its place."""
    count = Counter[str]()
    replicas: dict[str, list[Replica]] = {}
    for model, place in entries:
        count[model] += 1
        replica = Replica(f"{model}/{count[model]}", place, partial(new_engine, place))
        replicas.setdefault(model, []).append(replica)
    return SeveralEngines([Group(model, found) for model, found in replicas.items()], dialects)


class SeveralEngines:
    """The groups of replicas. As one engine it is the first model's, with the places of all."""

    def __init__(self, groups: Sequence[Group], dialects: Mapping[str, Dialect]) -> None:
        """`dialects` by the models' names."""
        self.groups = {group.model: group for group in groups}
        self.first = groups[0]
        self.model = self.first.model
        self.dialects = dialects
        self.dialect: Dialect | None = dialects[self.model]

    def replicas(self) -> Iterator[Replica]:
        for group in self.groups.values():
            yield from group.replicas

    def look(self) -> None:
        """Called once a second."""
        for group in self.groups.values():
            group.look()

    def state(self) -> list[dict[str, object]]:
        """How each engine is."""
        return [replica.state() for replica in self.replicas()]

    def made(self, response_id: str) -> Sequence[str]:
        """The labels of the engines that have made a response."""
        return next(filter(None, (each.made(response_id) for each in self.groups.values())), ())

    async def start(self) -> None:
        starts = (each.start() for each in self.groups.values())
        results = await asyncio.gather(*starts, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                await self.stop(0)
                raise result

    async def stop(self, deadline_s: float) -> None:
        stops = (each.stop(deadline_s) for each in self.groups.values())
        for result in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        for dialect in self.dialects.values():
            await dialect.close()

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        return self.first.generate(prompt_ids, options, sink)

    def health(self) -> Health:
        """Ready while one model is; its own lease says whether a request's model is."""
        found = [each.health() for each in self.groups.values()]
        ready = any(each.ready for each in found)
        return replace(
            found[0],
            alive=any(each.alive for each in found),
            ready=ready,
            last_progress_ns=max(each.last_progress_ns for each in found),
            reason=None if ready else "; ".join(each.reason or "" for each in found),
        )

    def limits(self) -> Limits:
        own, *others = (each.limits() for each in self.groups.values())
        if not others:
            return own
        return replace(own, max_batch=own.max_batch + sum(each.max_batch for each in others))

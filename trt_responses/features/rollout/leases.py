"""Gives each run a version of the engine, to its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from weakref import WeakKeyDictionary

from trt_responses.features.rollout.loaded import Lease, Loaded
from trt_responses.features.rollout.versions import Versions
from trt_responses.run.origin import ORIGIN
from trt_responses.run.parts import Parts
from trt_responses.run.request import RunRequest
from trt_responses.run.run import Run
from trt_responses.run.runs import Runs


class VersionLeases:
    """Leases on the versions that are loaded."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._parts: WeakKeyDictionary[Loaded, Parts] = WeakKeyDictionary()

    def lease(self, request: RunRequest, model: str, parts: Parts) -> Lease:
        accepted, versions = request.accepted, self._versions
        continued = request.id or accepted.previous_response_id
        if continued is None and versions.canary is None:  # as mostly: there is no choice
            lease = versions.promoted.lease()
        else:
            origin = ORIGIN.get()
            root = accepted.conversation or accepted.echo.prompt_cache_key or origin.session
            root = root or origin.request_id
            lease = versions.lease(model, continued, root, accepted.sampling.adapter)
        lease.parts = self._parts.get(lease.loaded) or self._new_parts(lease.loaded, parts)
        return lease

    def _new_parts(self, loaded: Loaded, parts: Parts) -> Parts:
        waits, mint = parts.recovery, parts.mint
        made = self._parts[loaded] = replace(
            parts,
            engine=loaded,
            recovery=None if waits is None else waits.over(loaded),
            mint=lambda prefix: (
                loaded.version.marked(mint(prefix)) if prefix == "resp" else mint(prefix)
            ),
        )
        return made


def made_by(runs: Runs, loaded: Loaded) -> Iterator[Run]:
    """Those that a version of the engine has begun and not ended."""
    for run, lease in runs.leased():
        if isinstance(lease, Lease) and lease.loaded is loaded and run.begun:
            yield run


async def pause(runs: Runs, loaded: Loaded) -> int:
    """Take the runs of a version from its engine; they go on when another version is in its place.
    Returns how many there are."""
    return sum(run.pause() for run in made_by(runs, loaded))

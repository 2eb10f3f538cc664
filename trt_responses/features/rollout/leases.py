"""Gives each run a version of the engine, to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote
from weakref import WeakKeyDictionary

from trt_responses.features.rollout.versions import LeaseRequest
from trt_responses.run.origin import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trt_responses.features.rollout.loaded import Lease, Loaded
    from trt_responses.features.rollout.versions import Versions
    from trt_responses.run.parts import Parts
    from trt_responses.run.request import RunRequest
    from trt_responses.run.run import Run
    from trt_responses.run.runs import Runs


class VersionLeases:
    """Leases on the versions that are loaded."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._parts: WeakKeyDictionary[Loaded, Parts] = WeakKeyDictionary()

    def lease(self, request: RunRequest, model: str, parts: Parts) -> VersionLease:
        accepted, origin = request.accepted, ORIGIN.get()
        root = accepted.conversation or accepted.echo.prompt_cache_key or origin.session
        continued = request.id or accepted.previous_response_id
        wanted = LeaseRequest(model, continued, root, accepted.sampling.adapter)
        lease = self._versions.lease(wanted, origin.request_id)
        return VersionLease(lease, self._parts_of(lease.loaded, parts))

    def _parts_of(self, loaded: Loaded, parts: Parts) -> Parts:
        if (found := self._parts.get(loaded)) is None:
            waits, mint = parts.recovery, parts.mint
            found = self._parts[loaded] = replace(
                parts,
                engine=loaded,
                recovery=None if waits is None else waits.over(loaded),
                mint=lambda prefix: (
                    loaded.version.marked(mint(prefix)) if prefix == "resp" else mint(prefix)
                ),
            )
        return found


class VersionLease:
    """One run's hold on a version."""

    def __init__(self, lease: Lease, parts: Parts) -> None:
        self.loaded = lease.loaded
        self.parts = parts
        self._lease = lease

    def headers(self) -> Mapping[str, str]:
        headers, gone = {}, self._lease.gone
        if "@" in (version := self.loaded.version.label):
            headers["x-trt-engine"] = quote(version, safe="@")
        if gone is not None:
            headers["x-trt-engine-gone"] = quote(gone, safe="@")
        return headers

    def release(self) -> None:
        self._lease.release()


def made_by(runs: Runs, loaded: Loaded) -> Iterator[Run]:
    """Those that a version of the engine has begun and not ended."""
    for run, lease in runs.leased():
        if isinstance(lease, VersionLease) and lease.loaded is loaded and run.begun:
            yield run


async def pause(runs: Runs, loaded: Loaded) -> int:
    """Take the runs of a version from its engine; they go on when another version is in its place.
    Returns how many there are."""
    return sum(run.pause() for run in made_by(runs, loaded))

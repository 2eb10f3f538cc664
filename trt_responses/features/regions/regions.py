"""Regions in ids: a server tells a response that has not arrived here from one that is unknown.

Each region has a store of its own, and copies of the others' records arrive late.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from trt_responses.errors import IN_PROGRESS_S, InvalidRequest
from trt_responses.feature import Step
from trt_responses.run.parts import ID_LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.draft import Draft

TAG_LETTERS = 4


class Regions:
    """The regions of a deployment, this server's first."""

    reads = ("previous_response_id",)

    def __init__(self, names: Sequence[str]) -> None:
        self._here = names[0]
        self._names = {tag_of(name): name for name in names}

    def minted(self, mint: Callable[[str], str]) -> Callable[[str], str]:
        """Makes ids that name this region, of the same length."""
        tag = tag_of(self._here)

        def minted(prefix: str) -> str:
            made = mint(prefix)
            return f"{made[:-ID_LETTERS]}{tag}{made[TAG_LETTERS - ID_LETTERS :]}"

        return minted

    def region_of(self, response_id: str) -> str | None:
        """The region that made an id; None if the id names none of them."""
        return self._names.get(response_id[-ID_LETTERS : TAG_LETTERS - ID_LETTERS])

    def accept(self, accepted: Accepted) -> Step | None:
        previous = accepted.previous_response_id or ""
        region = self.region_of(previous)
        return None if region in (None, self._here) else _Elsewhere(previous, region or "")


class _Elsewhere(Step):
    def __init__(self, previous: str, region: str) -> None:
        self._previous, self._region = previous, region

    async def acquire(self, draft: Draft) -> None:
        if await draft.records.get(self._previous, draft.owner) is None:
            raise InvalidRequest(
                f"Response '{self._previous}' was made in the region '{self._region}' and has not "
                "arrived here, or was deleted: send the request there, or later.",
                status=409,
                param="previous_response_id",
                code="previous_response_not_here",
                retry_after_s=IN_PROGRESS_S,
            )


def tag_of(region: str) -> str:
    """The letters of a region in ids: a hash, so that other ids hardly name one."""
    return hashlib.blake2b(region.encode(), digest_size=TAG_LETTERS // 2).hexdigest()

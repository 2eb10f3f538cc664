"""Regions in ids: a server tells a record that has not arrived here from one that is unknown.

Each region has a store of its own, and copies of the others' records arrive late.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import cast

from trt_responses.errors import IN_PROGRESS_S, InvalidRequest
from trt_responses.features.regions.settings import RegionSettings
from trt_responses.run.parts import ID_LETTERS
from trt_responses.setup.server import Server
from trt_responses.store import Found
from trt_responses.stores.around import Around
from trt_responses.stores.whole import WholeStore

KINDS = {"resp": "Response", "conv": "Conversation"}
"""What clients name by ids, by the ids' prefix."""
TAG_LETTERS = 4


def install(server: Server) -> None:
    own = RegionSettings.of(server.settings)
    if own.regions:
        server.mint = minted_in(own.regions[0], server.mint)
        server.store = cast("WholeStore", RegionalStore(server.store, own.regions))


def minted_in(region: str, mint: Callable[[str], str]) -> Callable[[str], str]:
    """Makes ids that name this region, of the same length."""
    tag = tag_of(region)

    def minted(prefix: str) -> str:
        made = mint(prefix)
        return f"{made[:-ID_LETTERS]}{tag}{made[TAG_LETTERS - ID_LETTERS :]}"

    return minted


class RegionalStore(Around):
    """The store of one region: what is unknown here may be known to another one."""

    def __init__(self, inner: WholeStore, names: Sequence[str]) -> None:
        """`names` are the regions of a deployment, this server's first."""
        super().__init__(inner)
        self._here = names[0]
        self._names = {tag_of(name): name for name in names}

    async def get(self, response_id: str, owner: str) -> Found:
        found = await self.inner.get(response_id, owner)
        if found is None:
            self._check(response_id)
        return found

    async def delete(self, response_id: str, owner: str) -> bool:
        is_deleted = await self.inner.delete(response_id, owner)
        if not is_deleted:
            self._check(response_id)
        return is_deleted

    def _check(self, name: str) -> None:
        """Raise if another region has made a record that is not stored here."""
        kind = KINDS.get(name.partition("_")[0])
        region = self._names.get(name[-ID_LETTERS : TAG_LETTERS - ID_LETTERS])
        if kind is not None and region not in (None, self._here):
            raise InvalidRequest(
                f"{kind} '{name:.100}' was made in the region '{region}' and has not arrived "
                "here, or was deleted: send the request there, or later.",
                status=409,
                code="previous_response_not_here",
                retry_after_s=IN_PROGRESS_S,
            )


def tag_of(region: str) -> str:
    """The letters of a region in ids: a hash, so that other ids hardly name one."""
    return hashlib.blake2b(region.encode(), digest_size=TAG_LETTERS // 2).hexdigest()

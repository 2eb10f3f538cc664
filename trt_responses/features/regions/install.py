"""Ids that name their region."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from trt_responses.features.regions.regions import RegionalStore, Regions
from trt_responses.features.regions.settings import RegionSettings

if TYPE_CHECKING:
    from trt_responses.setup.server import Server
    from trt_responses.stores.whole import WholeStore


def install(server: Server) -> None:
    own = RegionSettings.of(server.settings)
    if own.regions:
        regions = Regions(own.regions)
        server.mint = regions.minted(server.mint)
        server.store = cast("WholeStore", RegionalStore(server.store, regions))

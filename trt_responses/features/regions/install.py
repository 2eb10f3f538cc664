"""Ids that name their region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.regions.regions import Regions
from trt_responses.features.regions.settings import RegionSettings

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    own = RegionSettings.of(server.settings)
    if own.regions:
        regions = Regions(own.regions)
        server.mint = regions.minted(server.mint)
        server.features.append(regions)

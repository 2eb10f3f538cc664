"""Ids that name their region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.regions.regions import Regions

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    if server.settings.regions:
        regions = Regions(server.settings.regions)
        server.mint = regions.minted(server.mint)
        server.features.append(regions)

"""All that is kept of one owner: exported and erased by an admin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.owners.endpoint import OwnerActs

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.add_routes(77, lambda shared: [OwnerActs(shared)])

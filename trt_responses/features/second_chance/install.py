"""One more turn for a response that ended without anything for its client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.second_chance.second_chance import SecondChance

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.second_chance = SecondChance

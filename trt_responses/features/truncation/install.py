"""Prompts that are too long lose their oldest turns, where a request allows it."""

from __future__ import annotations

from trt_responses.accept.accepted import Accepted
from trt_responses.features.truncation.truncation import overflow
from trt_responses.setup.server import Server


class Truncation:
    """Has no step: prompts are cut where they are made."""

    reads = ("truncates",)

    def accept(self, accepted: Accepted) -> None:
        """Nothing to do."""


def install(server: Server) -> None:
    server.overflow = overflow
    server.features.append(Truncation())

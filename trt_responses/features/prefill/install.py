"""Prompts that are read for a later request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.prefill.feature import Prefills

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.features.append(Prefills())

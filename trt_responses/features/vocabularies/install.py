"""Conversations that a model of another vocabulary has begun."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.vocabularies.vocabularies import translated

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.translation = translated

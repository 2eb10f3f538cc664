"""The fields of vLLM's and llama.cpp's APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.peer_words.feature import PeerSampling, PeerWords
from trt_responses.features.peer_words.words import FIELDS

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.own_fields += FIELDS
    server.features += (PeerWords(), PeerSampling())

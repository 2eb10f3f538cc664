"""Why a prompt found less in the cache than an earlier one left there."""

from __future__ import annotations

from trt_responses.features.cache_diagnostics.feature import Diagnoses
from trt_responses.features.explain.explanations import Explanations
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.features.append(Diagnoses(server.of(Explanations)))

"""Events as the Open Responses specification spells them, where a request wants it."""

from __future__ import annotations

from trt_responses.features.open_responses.dialect import OPEN_RESPONSES
from trt_responses.setup.server import Server
from trt_responses.wire.dialect import DIALECTS


def install(_: Server) -> None:
    DIALECTS[OPEN_RESPONSES.name] = OPEN_RESPONSES

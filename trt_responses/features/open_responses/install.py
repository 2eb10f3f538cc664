"""Events as the Open Responses specification spells them, where a request wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.open_responses.dialect import OPEN_RESPONSES
from trt_responses.wire.dialect import DIALECTS

if TYPE_CHECKING:
    from trt_responses.setup.server import Server


def install(_: Server) -> None:
    DIALECTS[OPEN_RESPONSES.name] = OPEN_RESPONSES

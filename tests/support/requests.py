"""Requests as a run is made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trt_responses.accept.responses import accept
from trt_responses.wire.parse import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.accept.accepted import Accepted


def accepted(fields: Mapping[str, object]) -> Accepted:
    """What a request with these fields asks for; a model and an input are added."""
    body = {"model": "gpt-oss", "input": "Hi"} | dict(fields)
    return accept(parse(orjson.dumps(body)))

"""Small requests of the server's own: does an engine live, and do its guides guide.

Knows how to wait with a deadline; knows no concrete engine.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trt_responses.engine.base import Chunk, Gathered, GenerateOptions, Guide
from trt_responses.errors import ApiError
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.engine.base import Handle, Sink

PROBE_IDS = (CONTROL.start,)
PROBE = GenerateOptions(max_tokens=1, stop_ids=(), temperature=0.0, priority=1.0)
CANARY = GenerateOptions(
    max_tokens=16,
    stop_ids=(),
    temperature=0.0,
    guide=Guide("json_schema", '{"const": "yes, déjà"}'),
)
"""Forced letters beyond ASCII are where a guide breaks off when a model lacks its merges."""


async def last_chunk(begin: Callable[[Sink], Handle], deadline_s: float | None) -> Chunk:
    """The chunk with which a request ends; one that is refused or too late ends with an error."""
    answer = Gathered()
    try:
        handle = begin(answer)
    except ApiError as error:
        return Chunk(finish="error", error=error.message)
    try:
        return await asyncio.wait_for(answer.last, deadline_s)
    except TimeoutError:
        return Chunk(finish="error", error=f"no token within {deadline_s:g} s")
    finally:
        handle.abort()

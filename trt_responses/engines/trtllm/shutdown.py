"""Shuts TensorRT-LLM down, with a deadline.

It uses one method of the package: no requests.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress

from trt_responses.engines.trtllm.api import LLM

logger = logging.getLogger(__name__)


async def shut_down(llm: LLM, deadline_s: float) -> None:
    """Shut the package down in a separate thread: with a dead worker it may never return."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut() -> None:
        try:
            llm.shutdown()
        finally:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=shut, daemon=True).start()
    try:
        async with asyncio.timeout(deadline_s):
            await done.wait()
    except TimeoutError:
        logger.warning("TensorRT-LLM shutdown timeout: not finished after %g s", deadline_s)

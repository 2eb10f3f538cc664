"""The end of TensorRT-LLM in this process, bounded.

Knows one method of the package; knows no request.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trt_responses.engines.trtllm.api import LLM

logger = logging.getLogger(__name__)


async def shut_down(llm: LLM, deadline_s: float) -> None:
    """Shut the package down, in a thread of its own, since with a dead worker that may never
    return."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut() -> None:
        try:
            llm.shutdown()
        finally:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(done.set)

    threading.Thread(target=shut, daemon=True).start()
    try:
        async with asyncio.timeout(deadline_s):
            await done.wait()
    except TimeoutError:
        logger.warning("TensorRT-LLM did not shut down within %g s.", deadline_s)

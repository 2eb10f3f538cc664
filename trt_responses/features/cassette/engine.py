"""Stands for an engine in a server that has none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NoReturn

from trt_responses.engine import GenerateOptions, Health, Limits, Sink
from trt_responses.errors import EngineUnavailable


class NoEngine:
    """Refuses to generate."""

    async def start(self) -> None:
        """Nothing is loaded."""

    async def stop(self, deadline_s: float) -> None:
        """Nothing runs."""

    def health(self) -> Health:
        return Health(alive=True, ready=True, last_progress_ns=time.monotonic_ns())

    def limits(self) -> Limits:
        return Limits(context_tokens=1, max_batch=1)

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> NoReturn:
        raise EngineUnavailable("This server has no model: it records or replays another one.")

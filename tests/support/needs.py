"""What the live tests need, and what of it is missing here."""

from __future__ import annotations

import importlib.util
import os

from trt_responses.prepare.hardware import visible_gpus

CHECKPOINT = "TRT_RESPONSES_LIVE_CHECKPOINT"


def missing() -> str | None:
    """Why nothing can run here."""
    gpus, why = visible_gpus()
    if not gpus:
        return f"no GPU: {why}"
    if importlib.util.find_spec("tensorrt_llm") is None:
        return "tensorrt_llm is not installed"
    if not os.environ.get(CHECKPOINT):
        return f"{CHECKPOINT} names no gpt-oss checkpoint"
    return None

"""The settings of `features/metrics/`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trt_responses.settings.values import SecretText, SettingGroup


class MetricSettings(SettingGroup):
    """Who reads metrics, and under which names."""

    metrics_key: SecretText = Field(
        None,
        description="Key for /metrics; an admin's key works too (default: no key is required).",
    )
    metrics_names: Literal["trtllm", "vllm", "none"] = Field(
        "trtllm",
        description="Also export metrics under another server's names: `trtllm`, `vllm` or `none`.",
    )

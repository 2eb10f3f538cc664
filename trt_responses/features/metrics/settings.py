"""The settings of `features/metrics/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import SecretText, SettingGroup


class MetricSettings(SettingGroup):
    """Who reads metrics."""

    metrics_key: SecretText = Field(
        None,
        description="Key for /metrics; an admin's key works too (default: no key is required).",
    )

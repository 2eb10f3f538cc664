"""The settings of `features/metrics/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import HeaderKey, SettingGroup


class MetricSettings(SettingGroup):
    """Who reads metrics."""

    metrics_key: HeaderKey = Field(
        None,
        description="Key for /metrics; an admin's key works too (default: no key is required).",
    )

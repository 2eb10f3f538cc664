"""The settings of `features/traces/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import SettingGroup, Url


class TraceSettings(SettingGroup):
    """Where traces go."""

    otlp_endpoint: Url | None = Field(
        None,
        description="URL for traces over OTLP/HTTP, such as `http://collector:4318/v1/traces`; "
        "needs the extra `otel` (default: no traces).",
    )

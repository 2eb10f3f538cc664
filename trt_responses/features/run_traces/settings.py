"""The settings of `features/run_traces/`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trt_responses.settings.values import SettingGroup


class TraceSettings(SettingGroup):
    """What clients may read of a run."""

    explain: Literal["full", "redacted", "off"] = Field(
        "full",
        description="What GET /v1/responses/{id}/explain returns to the owner: full, redacted "
        "(counts instead of texts) or off.",
    )

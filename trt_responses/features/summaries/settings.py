"""The settings of `features/summaries/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import SettingGroup


class SummarySettings(SettingGroup):
    """Summaries of reasoning."""

    thought_summaries: bool = Field(
        False,
        description="Return reasoning as a summary when requested; some clients show nothing else.",
    )

"""The settings of `features/open_responses/`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trt_responses.settings.values import SettingGroup


class SpellingSettings(SettingGroup):
    """The spelling of events."""

    dialect: Literal["openai", "open-responses"] = Field(
        "openai", description="Spelling of events, unless the header `x-trt-dialect` chooses one."
    )

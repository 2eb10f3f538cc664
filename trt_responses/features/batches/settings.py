"""The settings of `features/batches/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import Positive, SettingGroup


class BatchSettings(SettingGroup):
    """Limits of batches."""

    owner_batches: Positive = Field(
        100, description="Maximum open batches of one owner; further ones get 429."
    )

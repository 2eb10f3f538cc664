"""The settings of `features/background/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import FixedGroup


class BackgroundNumbers(FixedGroup):
    """Bounds of background responses."""

    max_background: int = Field(
        32, description="Background responses of one owner made at once: twice an engine's batch."
    )

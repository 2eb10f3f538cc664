"""The settings of a fleet's processes."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import Seconds, SettingGroup


class FleetSettings(SettingGroup):
    """The watch over processes."""

    engine_silence_s: Seconds = Field(
        20.0,
        ge=2,
        description="Seconds without a heartbeat after which an engine process or a front end "
        "is restarted.",
    )

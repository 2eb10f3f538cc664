"""The settings of a fleet's processes."""

from __future__ import annotations

from pydantic import Field

from trt_responses.fleet.auto import NumberOrAuto
from trt_responses.settings.values import Seconds, SettingGroup


class FleetSettings(SettingGroup):
    """The processes, and the watch over them."""

    frontends: NumberOrAuto = Field(
        1,
        ge=1,
        le=64,
        description="HTTP processes that share one port and one engine; `auto`: as many as fit.",
    )
    engine_silence_s: Seconds = Field(
        20.0,
        ge=2,
        description="Seconds without a heartbeat after which an engine process or a front end "
        "is restarted.",
    )

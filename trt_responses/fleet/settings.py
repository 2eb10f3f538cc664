"""The settings of a fleet's processes."""

from __future__ import annotations

from pydantic import Field

from trt_responses.fleet.auto import NumberOrAuto
from trt_responses.settings import Settings
from trt_responses.settings.values import SettingGroup


class FleetSettings(SettingGroup):
    """The processes, and the watch over them."""

    frontends: NumberOrAuto = Field(
        1,
        ge=1,
        le=64,
        description="HTTP processes that share one port and one engine; `auto`: as many as fit.",
    )


LEAST_SILENCE_S = 5.0
"""A busy machine delays a heartbeat by less."""


def silence_s(settings: Settings) -> float:
    """Seconds without a heartbeat after which an engine process or a front end is restarted: a
    sixth of STALL_S, so that the next one is up before the server counts as stalled."""
    return max(settings.stall_s / 6, LEAST_SILENCE_S)

"""The settings of `features/regions/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import SettingGroup, Words


class RegionSettings(SettingGroup):
    """Regions with stores of their own."""

    regions: Words = Field(
        (),
        description="Regions with stores of their own, this server's first: ids name theirs, and a "
        "response that has not arrived from another one is a 409 `previous_response_not_here`.",
    )

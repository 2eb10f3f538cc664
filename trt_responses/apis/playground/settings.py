"""The settings of `apis/playground/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import SettingGroup


class PlaygroundSettings(SettingGroup):
    """The page."""

    playground: bool = Field(True, description="Serve the page at `/`.")

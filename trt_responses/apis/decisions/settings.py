"""The settings of `apis/decisions/`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from trt_responses.settings.values import SettingGroup


class DecisionSettings(SettingGroup):
    """How decisions are corrected."""

    decisions_calibration: Path | None = Field(
        None,
        description="JSON file that corrects decisions by kind: `temperature`, and the log odds "
        "`bias` of predicates.",
    )

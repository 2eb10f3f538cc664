"""The settings of `features/rollout/`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from trt_responses.settings.values import SettingGroup


class RolloutSettings(SettingGroup):
    """Comparison of versions."""

    gate_prompts: Path | None = Field(
        None,
        description="JSONL file of request bodies used to compare a new engine version "
        "(default: six built-in prompts).",
    )

"""The settings of `features/explain/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import MIB, FixedGroup


class ExplainNumbers(FixedGroup):
    """Bounds of explanations."""

    explain_bytes: int = Field(8 * MIB, description="Of the newest runs: some thousand of them.")

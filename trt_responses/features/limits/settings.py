"""The settings of `features/limits/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import LARGEST, FixedGroup, Positive, SettingGroup


class LimitSettings(SettingGroup):
    """The queue, and limits of owners."""

    max_waiting: int = Field(
        256,
        ge=0,
        le=LARGEST,
        description="Maximum queue length; further requests get 503 `server_busy`.",
    )
    owner_running: Positive | None = Field(
        None, description="Maximum responses of one owner generated at once; further ones wait."
    )
    owner_waiting: int | None = Field(
        None,
        ge=0,
        le=LARGEST,
        description="Maximum queued responses of one owner; further ones get 429 (default with "
        "keys: half of MAX_WAITING).",
    )
    owner_requests_per_minute: Positive | None = Field(
        None, description="Maximum responses of one owner per minute; further ones get 429."
    )
    owner_tokens_per_minute: Positive | None = Field(
        None, description="Maximum prompt and output tokens of one owner per minute."
    )


class LimitNumbers(FixedGroup):
    """Bounds of the queue."""

    max_waiting_tokens: int = Field(
        1_000_000, description="Tokens of the prompts that wait: some 40 MB."
    )

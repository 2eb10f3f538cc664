"""The settings of `features/limits/`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from trt_responses.errors import UsageError
from trt_responses.settings import PREFIX
from trt_responses.settings.values import (
    LARGEST,
    FixedGroup,
    HeaderKey,
    Positive,
    SecretWords,
    SettingGroup,
)


class KeySettings(SettingGroup):
    """Keys of owners and admins."""

    api_keys: SecretWords = Field(
        (), description="Keys as `owner:key,…` (default: no key is required)."
    )
    keys_file: Path | None = Field(
        None,
        description="File of keys, in addition to API_KEYS, reloaded when it changes; see "
        "`trt-responses keys`.",
    )
    admin_key: HeaderKey = Field(
        None,
        description="Key of an admin, who may drain the server, load and unload engine "
        "versions, change the log level and read metrics; `trt-responses drain` "
        "sends it.",
    )

    def owners(self) -> dict[str, str]:
        """The owner that each API key stands for."""
        owners: dict[str, str] = {}
        for place, entry in enumerate(self.api_keys, 1):
            owner, _, key = entry.partition(":")
            if not (owner and key):
                raise UsageError(f"{PREFIX}API_KEYS: entry {place} is not of the form owner:key.")
            if not (key.isascii() and key.isprintable()):
                raise UsageError(
                    f"{PREFIX}API_KEYS: the key of entry {place} has a character that clients "
                    "cannot send in a header: use letters, digits and signs of ASCII."
                )
            if owners.setdefault(key, owner) != owner:
                raise UsageError(f"{PREFIX}API_KEYS: entry {place} gives another owner's key.")
        return owners

    @property
    def asks_for_keys(self) -> bool:
        return bool(self.api_keys) or self.keys_file is not None


class LimitSettings(SettingGroup):
    """The queue, and limits of owners."""

    max_waiting: int = Field(
        256,
        ge=0,
        le=LARGEST,
        description="Maximum queue length; further requests get 503 `server_busy`. With keys an "
        "owner may have half of it.",
    )
    owner_running: Positive | None = Field(
        None, description="Maximum responses of one owner generated at once; further ones wait."
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

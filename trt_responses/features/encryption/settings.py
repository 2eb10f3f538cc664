"""The settings of `features/encryption/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import SettingGroup


class EncryptionSettings(SettingGroup):
    """Encryption of the store."""

    store_keys: str | None = Field(
        None,
        description="File of keys that encrypt the store, a line each, or a vertical bar and a "
        "command that prints them: the first encrypts, all decrypt (default: not encrypted).",
    )

"""The settings of `features/seal/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import SecretWords, SettingGroup


class SealSettings(SettingGroup):
    """Encryption of reasoning."""

    seal_keys: SecretWords = Field(
        (),
        description="Keys that encrypt reasoning for clients: base64 of 32 bytes each, the same"
        " on all replicas; the first encrypts, all decrypt (default: a key file in "
        "DATA_DIR).",
    )

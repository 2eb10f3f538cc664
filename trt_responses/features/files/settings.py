"""The settings of `features/files/`."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import MIB, Folder, Positive, Seconds, SettingGroup


class FileSettings(SettingGroup):
    """Uploaded files."""

    files: Folder | None = Field(
        None, description="Directory of uploaded files (default: in DATA_DIR)."
    )
    files_bytes: Positive = Field(1024 * MIB, description="Maximum bytes of an owner's files.")
    files_age_s: Seconds = Field(30 * 86_400, description="Seconds until uploaded files expire.")

"""What is kept of responses: the store, streams to replay, explanations and repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from trt_responses.settings.values import (
    MIB,
    YEAR_S,
    Positive,
    Seconds,
    SettingGroup,
    Words,
)


class History(SettingGroup):
    """History of responses."""

    store: str | None = Field(
        None,
        description="Where responses are kept: memory://, sqlite:///path, redis://host:port or "
        "postgresql://user@host/database (default: a file in DATA_DIR; memory when embedded). "
        "sqlite:///path?synchronous=full survives a power cut. An installed package's store is "
        "NAME://PLACE.",
    )
    data_dir: Path = Field(
        Path("data"), description="Directory of the default history file and the sealing key."
    )
    store_bytes: Positive = Field(
        256 * MIB, description="Maximum size of stored responses, in bytes after compression."
    )
    store_records: Positive = Field(10_000, description="Maximum number of stored responses.")
    store_age_s: float | None = Field(
        30 * 86_400,
        gt=0,
        le=100 * YEAR_S,
        allow_inf_nan=False,
        description="Age at which stored responses expire, in seconds.",
    )
    seal_keys: Words = Field(
        (),
        description="Keys that encrypt reasoning for clients: base64 of 32 bytes each, the same"
        " on all replicas; the first encrypts, all decrypt (default: a key file in "
        "DATA_DIR).",
    )
    store_keys: str | None = Field(
        None,
        description="File of keys that encrypt the store, a line each, or a vertical bar and a "
        "command that prints them: the first encrypts, all decrypt (default: not encrypted).",
    )
    regions: Words = Field(
        (),
        description="Regions with stores of their own, this server's first: ids name theirs, and a "
        "response that has not arrived from another one is a 409 `previous_response_not_here`.",
    )
    lease_s: Seconds = Field(
        30.0,
        ge=0.1,
        description="Seconds until another server notices that a server died: its background "
        "responses look alive and its conversations stay locked until then.",
    )
    takeover_s: float = Field(
        300.0,
        ge=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="Seconds after LEASE_S in which another server of the same store may resume "
        "a dead server's background responses; then they fail. 0: they are never resumed.",
    )


class UploadedFiles(SettingGroup):
    """Uploaded files."""

    files: Path | None = Field(
        None,
        description="Directory of uploaded files, the same for all servers of one store (default: "
        "`files` in DATA_DIR).",
    )
    files_bytes: Positive = Field(
        1024 * MIB, description="Maximum size of one owner's uploaded files, in bytes."
    )
    files_age_s: Seconds = Field(
        30 * 86_400, description="Age at which uploaded files expire, in seconds."
    )


class Streams(SettingGroup):
    """Background runs and streams."""

    keep_alive_s: Seconds = Field(
        10.0, ge=0.1, description="Seconds of silence after which a stream gets a comment line."
    )


class Inspection(SettingGroup):
    """The page, and explanations."""

    playground: bool = Field(True, description="Serve the page at `/`.")
    explain: Literal["full", "redacted", "off"] = Field(
        "full",
        description="What GET /v1/responses/{id}/explain returns to the owner: full, redacted "
        "(counts instead of texts) or off.",
    )

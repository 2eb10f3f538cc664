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
        description="Where responses are kept: memory://, sqlite:///path or redis://host:port; "
        "a file in data_dir when served, memory when embedded. sqlite:///path?synchronous=full "
        "outlives the machine's death too.",
    )
    data_dir: Path = Field(
        Path("data"), description="Where the default history file and the sealing key are."
    )
    store_bytes: Positive = Field(256 * MIB, description="Bytes of stored responses, at rest.")
    store_records: Positive = Field(10_000, description="Number of stored responses.")
    store_age_s: float | None = Field(
        30 * 86_400,
        gt=0,
        le=100 * YEAR_S,
        allow_inf_nan=False,
        description="Age at which stored responses expire.",
    )
    seal_keys: Words = Field(
        (),
        description="Keys that seal reasoning, base64 of 32 bytes each, shared by replicas; the "
        "first seals, all open; none: a key file in data_dir.",
    )
    lease_s: Seconds = Field(
        30.0,
        ge=0.1,
        description="How long a dead server's background responses look alive, and conversations "
        "in which it was making a response stay locked.",
    )
    takeover_s: float = Field(
        300.0,
        ge=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="How long after that another server over the same history may go on with them, "
        "before they read as failed; 0: none does.",
    )


class Streams(SettingGroup):
    """Background runs and streams."""

    keep_alive_s: Seconds = Field(
        10.0, ge=0.1, description="Silence after which a stream gets a comment line."
    )


class Inspection(SettingGroup):
    """The page, and explanations."""

    playground: bool = Field(
        True, description="Show browsers a page at `/` with which to try the server."
    )
    explain: Literal["full", "redacted", "off"] = Field(
        "full",
        description="What GET /v1/responses/{id}/explain tells a response's owner; redacted: "
        "counts in the place of texts.",
    )

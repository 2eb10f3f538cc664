"""What a request may ask for, how it is answered, and where responses are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from trt_responses.settings.values import MIB, Positive, Seconds, SettingGroup


class RequestBounds(SettingGroup):
    """Bounds of a request."""

    max_body_bytes: Positive = Field(
        4 * MIB,
        description="Maximum size of a request body; each MiB can delay other streams by about "
        "5 ms.",
    )
    max_calls: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Maximum tool calls in one turn (default: 1 for gpt-oss, 8 for other models).",
    )
    max_tool_calls: Positive = Field(
        32,
        description="Maximum calls of the server's own tools in one response, whatever the "
        "request says.",
    )


class Writing(SettingGroup):
    """Contents of a response."""

    note_images: bool = Field(
        False,
        description="Replace images, files and audio by a text note instead of refusing them.",
    )
    speaks: str = Field(
        "harmony",
        description="How the model of an engine of another server writes: harmony, or the name "
        "of an installed package's dialect.",
    )
    dialect: Literal["openai", "open-responses"] = Field(
        "openai", description="Spelling of events, unless the header `x-trt-dialect` chooses one."
    )


class Queue(SettingGroup):
    """Queue and limits of owners."""

    max_running: Positive | None = Field(
        None, description="Maximum responses generated at once (default: what the engine supports)."
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


class Streams(SettingGroup):
    """Background runs and streams."""

    keep_alive_s: Seconds = Field(
        10.0, ge=0.1, description="Seconds of silence after which a stream gets a comment line."
    )


class Inspection(SettingGroup):
    """The page, and explanations."""

    explain: Literal["full", "redacted", "off"] = Field(
        "full",
        description="What GET /v1/responses/{id}/explain returns to the owner: full, redacted "
        "(counts instead of texts) or off.",
    )

"""What one request, connection or owner may ask for, and how its answer is written."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from trt_responses.settings.values import LARGEST, MIB, Positive, SettingGroup


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
    thought_summaries: bool = Field(
        False,
        description="Return reasoning as a summary when requested; some clients show nothing else.",
    )
    chat_reasoning: Literal["both", "reasoning", "reasoning_content"] = Field(
        "both",
        description="Field of a chat completion that holds the reasoning; `both` writes it twice "
        "until the client sends one of them back.",
    )
    speaks: str = Field(
        "harmony",
        description="How the model of an engine of another server writes: harmony, a directory "
        "with its tokeniser and chat template, or the name of an installed package's dialect.",
    )
    dialect: Literal["openai", "open-responses"] = Field(
        "openai", description="Spelling of events, unless the header `x-trt-dialect` chooses one."
    )
    decisions_calibration: Path | None = Field(
        None,
        description="JSON file that corrects decisions by kind: `temperature`, and the log odds "
        "`bias` of predicates.",
    )


class Queue(SettingGroup):
    """Queue and limits of owners."""

    max_running: Positive | None = Field(
        None, description="Maximum responses generated at once (default: what the engine supports)."
    )
    max_waiting: int = Field(
        256,
        ge=0,
        le=LARGEST,
        description="Maximum queue length; further requests get 503 `server_busy`.",
    )
    websockets: int = Field(
        64,
        ge=0,
        le=LARGEST,
        description="Maximum open WebSocket connections, half of them for one owner when keys "
        "are required; 0 refuses every upgrade with 426.",
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

"""What one request, connection or owner may ask for, and how its answer is written."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trt_responses.settings.values import LARGEST, MIB, Positive, SettingGroup


class RequestBounds(SettingGroup):
    """What a request may be."""

    max_body_bytes: Positive = Field(
        4 * MIB, description="Largest request body; each MiB can hold other streams for some 5 ms."
    )
    max_calls: int = Field(
        1, ge=1, le=64, description="Calls in one turn; models were trained to make one."
    )
    max_tool_calls: Positive = Field(
        32, description="Calls of the server's own tools in one response, whatever it asks for."
    )


class Writing(SettingGroup):
    """What is written."""

    note_images: bool = Field(
        False,
        description="Let a line of text stand for images, files and sounds; else they are refused.",
    )
    thought_summaries: bool = Field(
        False,
        description="Give thoughts as reasoning summaries to clients that ask for those: some show "
        "nothing else.",
    )
    dialect: Literal["openai", "open-responses"] = Field(
        "openai", description="How events are spelled unless `x-trt-dialect` says otherwise."
    )


class Queue(SettingGroup):
    """How much at once."""

    max_running: Positive | None = Field(
        None, description="Responses that the engine makes at once; none: as many as it can."
    )
    max_waiting: int = Field(
        256,
        ge=0,
        le=LARGEST,
        description="Responses that wait for a place in the engine; more get a 503 `server_busy`.",
    )
    websockets: int = Field(
        64,
        ge=0,
        le=LARGEST,
        description="WebSocket connections open at once, one owner's at most half of them when "
        "keys are configured; 0: none, and each upgrade gets a 426.",
    )
    owner_running: Positive | None = Field(
        None, description="Responses of one owner that the engine makes at once; its others wait."
    )
    owner_waiting: int | None = Field(
        None,
        ge=0,
        le=LARGEST,
        description="Responses of one owner that wait; more get a 429. None: half of MAX_WAITING "
        "where keys are required.",
    )
    owner_requests_per_minute: Positive | None = Field(
        None, description="Responses that one owner may ask for in a minute; more get a 429."
    )
    owner_tokens_per_minute: Positive | None = Field(
        None, description="Tokens, read and written, that one owner may use in a minute."
    )

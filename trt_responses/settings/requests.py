"""What one request, connection or owner may ask for, and how its answer is written."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trt_responses.settings.values import LARGEST, MIB, YEAR_S, Positive, Seconds, SettingGroup


class RequestBounds(SettingGroup):
    """What a request may be."""

    max_body_bytes: Positive = Field(
        4 * MIB, description="Largest request body; each MiB can hold other streams for some 5 ms."
    )
    max_body_values: Positive = Field(
        64_000,
        description="Values in a request body, counted before it is parsed; each 1,000 can hold "
        "other streams for some 0.5 ms.",
    )
    max_header_bytes: Positive = Field(
        64 * 1024, description="Largest head of a request; larger ones get a 431."
    )
    read_timeout_s: Seconds = Field(
        60.0,
        description="Seconds in which a client has to begin a request, to end its head, and to "
        "send its body or 64 KiB more of it; then a 408, and the connection is closed.",
    )
    max_tools: Positive = Field(1024, description="Tools in one request.")
    max_input: Positive = Field(10_000, description="Items in one request's input.")
    max_metadata: int = Field(16, ge=0, le=16, description="Pairs in a request's metadata.")
    max_calls: int = Field(
        1, ge=1, le=64, description="Calls in one turn; models were trained to make one."
    )
    max_tool_calls: Positive = Field(
        32, description="Calls of the server's own tools in one response, whatever it asks for."
    )


class Writing(SettingGroup):
    """What is written."""

    schema_s: float = Field(
        1.0,
        gt=0,
        le=YEAR_S,
        allow_inf_nan=False,
        description="Seconds that compiling one request's schemas may take; then a 400.",
    )
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


class WebSockets(SettingGroup):
    """WebSocket connections."""

    websockets: int = Field(
        64,
        ge=0,
        le=LARGEST,
        description="WebSocket connections open at once, one owner's at most half of them when "
        "keys are configured; 0: none, and each upgrade gets a 426.",
    )
    websocket_s: Seconds = Field(
        3600.0, description="How long a WebSocket connection lives; clients then open another."
    )
    websocket_running: Positive = Field(
        16, description="Responses made at once on one WebSocket connection; others wait."
    )
    websocket_lanes: Positive = Field(
        32, description="Values of `stream_id` on one WebSocket connection."
    )
    websocket_bytes: Positive = Field(
        8 * MIB,
        description="Bytes of unstored responses that one WebSocket connection can continue.",
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
    max_waiting_tokens: Positive = Field(
        1_000_000, description="Tokens of the prompts that wait; with more a prompt gets a 503."
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

"""Numbers that no operator turns: no variable sets them. The tests do, and each says its reason."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import MIB, SettingGroup


class Fixed(SettingGroup):
    """Fixed numbers."""

    max_body_values: int = Field(
        64_000,
        description="Values in a request body. 1,000 can hold other streams for some 0.5 ms, and a "
        "long history meets the bound of its items first.",
    )
    max_header_bytes: int = Field(
        64 * 1024, description="Head of a request: twice what proxies and browsers let through."
    )
    read_timeout_s: float = Field(
        60.0,
        description="To begin a request, to end its head, and to send 64 KiB of its body: as nginx "
        "has it.",
    )
    max_tools: int = Field(1024, description="Tools in a request: eight times the API's own bound.")
    max_input: int = Field(
        10_000, description="Items in a request's input: more than any context holds."
    )
    schema_s: float = Field(
        1.0, description="To compile one request's schemas: real ones take a hundredth of it."
    )
    max_waiting_tokens: int = Field(
        1_000_000, description="Tokens of the prompts that wait: some 40 MB."
    )
    max_backlog_bytes: int = Field(
        4 * MIB, description="That wait for a slow client of a stream: a whole long answer."
    )
    keep_alive_event_s: float = Field(
        30.0,
        description="Silence after which an event is repeated: half the shortest time after which "
        "a client gives up that counts events alone.",
    )
    knowledge_cutoff: str = Field(
        "2024-06", description="Second line of the system message: a fact of gpt-oss."
    )
    max_background: int = Field(
        32, description="Background responses of one owner made at once: twice an engine's batch."
    )
    explain_bytes: int = Field(8 * MIB, description="Of the newest runs: some thousand of them.")
    idempotency_keys: int = Field(256, description="Each holds a whole response.")
    idempotency_ttl_s: float = Field(600.0, description="No client retries for longer.")
    conversation_items: int = Field(10_000, description="As many as one request's input may have.")
    websocket_s: float = Field(3600.0, description="Life of a connection: as OpenAI's.")
    websocket_running: int = Field(16, description="Responses made at once on one connection.")
    websocket_lanes: int = Field(32, description="Values of `stream_id` on one connection.")
    websocket_bytes: int = Field(
        8 * MIB, description="Unstored responses that one connection can continue."
    )
    mcp_connect_s: float = Field(
        20.0, description="To start an MCP server or reach it, and to list its tools."
    )
    mcp_tools: int = Field(
        128, description="Of one MCP server: more confuse a model; `allowed_tools` chooses."
    )
    mcp_list_s: float = Field(300.0, description="For which a list of MCP tools is remembered.")

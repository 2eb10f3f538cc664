"""Numbers that no operator turns: no variable sets them. The tests do, and each says its reason."""

from __future__ import annotations

from pydantic import Field

from trt_responses.settings.values import MIB, FixedGroup


class Fixed(FixedGroup):
    """Fixed numbers."""

    max_body_values: int = Field(
        64_000,
        description="Values in a request body. 1,000 can hold other streams for some 0.5 ms, and a "
        "long history meets the bound of its items first.",
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

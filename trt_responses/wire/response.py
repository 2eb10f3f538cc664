"""The response object, with every key the API promises. Imports only items of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, Literal

import orjson

from trt_responses.frozen import dataclass
from trt_responses.wire.output import OutputItem

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


@dataclass(frozen=True)
class InputTokensDetails:
    """The input tokens that came from a cache."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0  # the SDK refuses a terminal event without it


@dataclass(frozen=True)
class OutputTokensDetails:
    """The output tokens that were thoughts."""

    reasoning_tokens: int = 0


@dataclass(frozen=True)
class Usage:
    """The tokens that a response read and wrote."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails


@dataclass(frozen=True)
class ResponseFault:
    """`code` is one of the API's closed list; the detail is in the message."""

    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


@dataclass(frozen=True)
class IncompleteDetails:
    """The reason why a response is incomplete."""

    reason: Literal["max_output_tokens", "content_filter", "steered"]


def lasting_json(value: object) -> bytes:
    """JSON for what is kept. What orjson returns stays in a buffer of four to sixteen times its
    size, of 4 KiB and more, for as long as it lives; a copy has its own size."""
    return bytes(memoryview(orjson.dumps(value)))


class EchoedTools(list[Mapping[str, Any]]):
    """A request's tools as its response has them. Requests like it share them, and their JSON."""

    @cached_property
    def json(self) -> Any:
        return orjson.Fragment(lasting_json(self))


@dataclass(frozen=True)
class Response:
    """A snapshot. The first block of fields is this response's own; the rest echoes the request.
    A store keeps equal echoes once, from the key in `stores/at_rest/blocks.py` on."""

    id: str
    created_at: int
    model: str
    status: ResponseStatus = "in_progress"
    output: tuple[OutputItem, ...] = ()
    completed_at: int | None = None
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: Usage | None = None
    previous_response_id: str | None = None
    conversation: Mapping[str, str] | None = None

    background: bool = False
    frequency_penalty: float = 0.0
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    parallel_tool_calls: bool = False
    presence_penalty: float = 0.0
    prompt_cache_key: str | None = None
    reasoning: Mapping[str, Any] = field(default_factory=dict)
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float = 1.0
    text: Mapping[str, Any] = field(default_factory=lambda: {"format": {"type": "text"}})
    tool_choice: str | Mapping[str, Any] = "auto"
    tools: Sequence[Mapping[str, Any]] = ()
    top_logprobs: int = 0
    top_p: float = 1.0
    truncation: Literal["disabled", "auto"] = "disabled"
    object: Literal["response"] = "response"

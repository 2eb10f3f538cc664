"""The response object, with every key the API promises. Imports nothing of ours but items."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.wire.items import OutputItem
    from trt_responses.wire.request import Request, Tool

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class InputTokensDetails:
    cached_tokens: int = 0
    cache_write_tokens: int = 0  # the SDK refuses a terminal event without it


@dataclass(frozen=True, slots=True)
class OutputTokensDetails:
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails


@dataclass(frozen=True, slots=True)
class ResponseFault:
    """`code` is one of the API's closed list; the detail is in the message."""

    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


@dataclass(frozen=True, slots=True)
class IncompleteDetails:
    reason: Literal["max_output_tokens", "content_filter"]


@dataclass(frozen=True, slots=True)
class Response:
    """A snapshot. The first block changes while a run goes on; the rest echoes the request."""

    id: str
    created_at: int
    model: str
    status: ResponseStatus = "in_progress"
    output: tuple[OutputItem, ...] = ()
    completed_at: int | None = None
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: Usage | None = None

    background: bool = False
    frequency_penalty: float = 0.0
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    parallel_tool_calls: bool = False
    presence_penalty: float = 0.0
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: Mapping[str, Any] = field(default_factory=dict)
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float = 1.0
    text: Mapping[str, Any] = field(default_factory=lambda: {"format": {"type": "text"}})
    tool_choice: str = "auto"
    tools: tuple[Mapping[str, Any], ...] = ()
    top_logprobs: int = 0
    top_p: float = 1.0
    truncation: Literal["disabled", "auto"] = "disabled"
    object: Literal["response"] = "response"


def opened(request: Request, *, id: str, created_at: int, model: str) -> Response:
    """The first snapshot: what was asked, with the default wherever the client sent none."""
    reasoning = request.reasoning
    return Response(
        id=id,
        created_at=created_at,
        model=model,
        frequency_penalty=request.frequency_penalty or 0.0,
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        metadata=request.metadata or {},
        presence_penalty=request.presence_penalty or 0.0,
        previous_response_id=request.previous_response_id,
        prompt_cache_key=request.prompt_cache_key,
        reasoning={
            "effort": reasoning.effort if reasoning else None,
            "summary": reasoning.summary if reasoning else None,
        },
        safety_identifier=request.safety_identifier,
        store=request.store is not False,
        temperature=1.0 if request.temperature is None else request.temperature,
        text={
            "format": {"type": "text"},
            "verbosity": (request.text and request.text.verbosity) or "medium",
        },
        tools=tuple(_echo(tool) for tool in request.tools or ()),
        top_p=1.0 if request.top_p is None else request.top_p,
    )


def _echo(tool: Tool) -> Mapping[str, Any]:
    """A tool as the API gives it back: every key is there, though the client left some out."""
    filled = {"description": None, "parameters": None, "strict": False}
    return filled | tool.model_dump(exclude_none=True)

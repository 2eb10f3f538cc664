"""The response object, with every key the API promises. Imports nothing of ours but items."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from trt_responses.frozen import dataclass
from trt_responses.wire.tools import FunctionTool, NamespaceTool, OtherTool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.wire.output import OutputItem
    from trt_responses.wire.request import Request
    from trt_responses.wire.tools import Tool

ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


@dataclass(frozen=True)
class InputTokensDetails:
    cached_tokens: int = 0
    cache_write_tokens: int = 0  # the SDK refuses a terminal event without it


@dataclass(frozen=True)
class OutputTokensDetails:
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class Usage:
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
    reason: Literal["max_output_tokens", "content_filter"]


@dataclass(frozen=True)
class Response:
    """A snapshot. The first block is this response's own; the rest echoes the request, and is
    stored once for all that were asked alike: it begins as `store.blocks.ASKED_FROM` says."""

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
    tools: tuple[Mapping[str, Any], ...] = ()
    top_logprobs: int = 0
    top_p: float = 1.0
    truncation: Literal["disabled", "auto"] = "disabled"
    object: Literal["response"] = "response"


def opened(
    request: Request, *, id: str, created_at: int, model: str, parallel_tool_calls: bool = False
) -> Response:
    """The first snapshot: what was asked, with the default wherever the client sent none."""
    return Response(
        id=id,
        created_at=created_at,
        model=model,
        status="queued" if request.background else "in_progress",
        background=bool(request.background),
        frequency_penalty=request.frequency_penalty or 0.0,
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        metadata=request.metadata or {},
        parallel_tool_calls=parallel_tool_calls,
        presence_penalty=request.presence_penalty or 0.0,
        previous_response_id=request.previous_response_id,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=_reasoning(request),
        safety_identifier=request.safety_identifier,
        store=request.store is not False,
        temperature=1.0 if request.temperature is None else request.temperature,
        text={
            "format": _format(request),
            "verbosity": (request.text and request.text.verbosity) or "medium",
        },
        tool_choice=_choice(request),
        tools=tuple(_echo(tool) for tool in request.tools or () if not isinstance(tool, OtherTool)),
        top_logprobs=request.top_logprobs or 0,
        top_p=1.0 if request.top_p is None else request.top_p,
        truncation=request.truncation or "disabled",
    )


def _echo(tool: Tool) -> Mapping[str, Any]:
    """A tool as the API gives it back: every key is there, though the client left some out."""
    told = tool.model_dump(exclude_none=True)
    if isinstance(tool, FunctionTool):
        return {"description": None, "parameters": None, "strict": False} | told
    if isinstance(tool, NamespaceTool):
        inner = [_echo(one) for one in tool.tools]
        return {"description": ""} | told | {"tools": inner}
    return told


def _reasoning(request: Request) -> Mapping[str, Any]:
    asked = request.reasoning
    if asked is None:
        return {"effort": None, "summary": None}
    echo: dict[str, Any] = {"effort": asked.effort, "summary": asked.summary}
    return echo if asked.max_tokens is None else echo | {"max_tokens": asked.max_tokens}


def _choice(request: Request) -> str | Mapping[str, Any]:
    choice = request.tool_choice
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    return choice.model_dump(exclude_unset=True)


def _format(request: Request) -> Mapping[str, Any]:
    asked = request.text.format if request.text else None
    if asked is None:
        return {"type": "text"}
    return {"type": asked.type} | asked.model_dump(by_alias=True, exclude_unset=True)

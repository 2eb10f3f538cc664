"""The body of `POST /v1/responses`, and of `POST /v1/responses/input_tokens`, as types and ranges.

What a field means for this server is in `fields.py`; how a body is read is in `parse.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from trt_responses.wire.base import (
    TEXT_OR_OBJECT,
    UNLESS_READ,
    ClosedObject,
    ListOf,
    NonEmpty,
    Options,
    TextOrListOf,
    few_keys,
)
from trt_responses.wire.choice import Effort, TextFormat, ToolChoice
from trt_responses.wire.items import SentItem
from trt_responses.wire.tools import Tool

MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]
Count = Annotated[int, Field(ge=1, lt=2**53)]
"""As large as every JSON parser's integers."""
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class ReasoningOptions(Options):
    """How much is thought, and what is shown of it."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    max_tokens: Annotated[int, Field(ge=0, lt=2**53)] | None = None


class TextOptions(Options):
    """The form of the answer."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class CacheOptions(Options):
    """How the prompt is cached."""

    comparison_response_id: Annotated[str, Field(max_length=1024)] | None = None


class StreamOptions(Options):
    """How a stream is written."""

    include_obfuscation: bool | None = None


Input = Annotated[TextOrListOf[SentItem], UNLESS_READ]
Identifier = Annotated[str, Field(max_length=1024)]
"""A name that a client makes up; the API allows 64 characters of most."""
Metadata = Annotated[
    dict[MetadataKey, MetadataValue], Field(max_length=16), BeforeValidator(few_keys)
]
MAX_INCLUDE = 64
"""Values of `include`; the API has eight."""


class ConversationId(Options):
    """A conversation by its id."""

    id: NonEmpty


Conversation = Annotated[NonEmpty | ConversationId, TEXT_OR_OBJECT]


class ContextManagement(ClosedObject):
    """The number of tokens from which on a conversation is compacted; null: the server's own."""

    type: Literal["compaction"]
    compact_threshold: Annotated[int, Field(ge=1000, lt=2**53)] | None = None


class Request(Options):
    """A request for a response. Null always means the default."""

    model: NonEmpty = ""
    """Absent: the one that is served."""
    input: Input
    background: bool | None = None
    context_management: Annotated[ListOf[ContextManagement], Field(max_length=1)] | None = None
    conversation: Conversation | None = None
    frequency_penalty: Penalty | None = None
    include: Annotated[ListOf[str], Field(max_length=MAX_INCLUDE)] | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    max_tool_calls: Count | None = None
    metadata: Metadata | None = None
    parallel_tool_calls: bool | None = None
    presence_penalty: Penalty | None = None
    previous_response_id: str | None = None
    prompt_cache_key: Identifier | None = None
    prompt_cache_options: CacheOptions | None = None
    prompt_cache_retention: Identifier | None = None
    reasoning: ReasoningOptions | None = None
    safety_identifier: Identifier | None = None
    service_tier: ServiceTier | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    text: TextOptions | None = None
    tool_choice: ToolChoice | None = None
    tools: Annotated[ListOf[Tool] | None, UNLESS_READ] = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: Identifier | None = None

    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None


def _null_is_empty(value: Any) -> Any:
    return "" if value is None else value


class CountRequest(Request):
    """A request whose input tokens are to be counted: nothing must be there."""

    model: Annotated[str, BeforeValidator(_null_is_empty)] = ""
    input: Annotated[Input, BeforeValidator(_null_is_empty)] = ""


def _null_is_empty_list(value: Any) -> Any:
    return [] if value is None else value


OptionalInput = Annotated[Input, BeforeValidator(_null_is_empty_list)]
"""An input that need not be there."""

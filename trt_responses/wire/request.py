"""The body of `POST /v1/responses`, straight from JSON, and a fault's place in it.

Types and ranges live here; what a field means for this server is in `fields.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, Tag, ValidationError

from trt_responses.errors import InvalidRequest
from trt_responses.wire.base import Sent, by_type
from trt_responses.wire.choice import JsonObject, PlainText, ToolChoice, Whole
from trt_responses.wire.items import TEXT_OR_LIST, SentItem
from trt_responses.wire.tools import FunctionTool as FunctionTool
from trt_responses.wire.tools import Name, Schema
from trt_responses.wire.tools import Tool as Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]
Count = Annotated[int, Field(ge=1, lt=2**53)]
"""As large as every JSON parser's integers."""
Penalty = Annotated[float, Field(ge=-2, le=2)]


class ReasoningOptions(Sent):
    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    max_tokens: Annotated[int, Field(ge=0, lt=2**53)] | None = None


class JsonSchema(Whole):
    type: Literal["json_schema"]
    name: Name
    schema_: Annotated[Schema, Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


TextFormat = Annotated[
    Annotated[PlainText, Tag("~text")]
    | Annotated[JsonObject, Tag("~json_object")]
    | Annotated[JsonSchema, Tag("~json_schema")],
    by_type("text", "json_object", "json_schema", untyped="text"),
]


class TextOptions(Sent):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class StreamOptions(Sent):
    include_obfuscation: bool | None = None


class Request(Sent):
    """What a client may ask for. Null always means the default."""

    model: Annotated[str, Field(min_length=1)]
    input: Annotated[
        Annotated[str, Tag("~text")] | Annotated[list[SentItem], Tag("~list")], TEXT_OR_LIST
    ]
    background: bool | None = None
    frequency_penalty: Penalty | None = None
    include: list[str] | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    max_tool_calls: Count | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None
    parallel_tool_calls: bool | None = None
    presence_penalty: Penalty | None = None
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning: ReasoningOptions | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    text: TextOptions | None = None
    tool_choice: ToolChoice | None = None
    tools: list[Tool] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None

    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None


NOUN = re.compile(r"^(Input|String|Value|Dictionary|List) | after validation, not (more|\d+)")
"""What pydantic says beside what was expected."""


SAID = {"extra_forbidden": "is no key of this object"}
"""Where pydantic's own words would not fit after the field's name."""


def parse(body: bytes, kind: type[Request] | None = None) -> Request:
    """The request, or an `InvalidRequest` that says where, what was expected, and what came."""
    try:
        return (kind or Request).model_validate_json(body)
    except ValidationError as error:
        raise _fault(error.errors(include_url=False)) from None


def _fault(details: list[ErrorDetails]) -> InvalidRequest:
    first = details[0]
    if first["type"] == "json_invalid":
        return InvalidRequest(
            f"The body is not JSON: {first['ctx']['error']}.", code="invalid_json"
        )
    param = place(first["loc"])
    expected = SAID.get(first["type"]) or NOUN.sub("", first["msg"])
    if first["type"] == "missing":
        return InvalidRequest(
            f"Missing required parameter: '{param}'.",
            param=param,
            code="missing_required_parameter",
        )
    return InvalidRequest(
        f"Invalid value for '{param or 'body'}': it {expected}, got {_came(first['input'])}.",
        param=param or None,
        code="invalid_value",
    )


def place(location: Iterable[int | str]) -> str:
    """`input[3].content[0].text`, as the API writes it."""
    written = ""
    for step in location:
        if isinstance(step, int):
            written += f"[{step}]"
        elif not step.startswith("~") and step != "[key]":
            written += f".{step}" if written else step
    return written


def _came(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool() | int() | float():
            return f"{value!r}"[:60]
        case str():
            return f"a string of {len(value)} characters" if len(value) > 40 else repr(value)
        case list():
            return f"a list of {len(value)}"
        case dict():
            kind = value.get("type")
            return f"an object of type {kind!r:.60}" if isinstance(kind, str) else "an object"
        case _:
            return type(value).__name__

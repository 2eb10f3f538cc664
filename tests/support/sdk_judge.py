"""The client SDK as the judge of events, with the keys that the specification adds to its own.

The SDK's types say what its clients need; the Open Responses schema requires more of the objects
inside. An event that satisfies both satisfies a strict client of either kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from openai import omit

# private: the SDK makes the response with it, behind a client over HTTP
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Json = dict[str, Any]
    Path = tuple[str | int, ...]

SDK: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)

_AT = ("item_id", "output_index", "content_index")
REQUIRED: dict[str, tuple[str, ...]] = {
    "response.created": ("response",),
    "response.in_progress": ("response",),
    "response.completed": ("response",),
    "response.incomplete": ("response",),
    "response.failed": ("response",),
    "response.output_item.added": ("item", "output_index"),
    "response.output_item.done": ("item", "output_index"),
    "response.content_part.added": (*_AT, "part"),
    "response.content_part.done": (*_AT, "part"),
    "response.output_text.delta": (*_AT, "delta", "logprobs"),
    "response.output_text.done": (*_AT, "text", "logprobs"),
    "response.reasoning_text.delta": (*_AT, "delta"),
    "response.reasoning_text.done": (*_AT, "text"),
    "response.function_call_arguments.delta": ("item_id", "output_index", "delta"),
    "response.function_call_arguments.done": ("item_id", "output_index", "arguments"),
    "response.custom_tool_call_input.delta": ("item_id", "output_index", "delta"),
    "response.custom_tool_call_input.done": ("item_id", "output_index", "input"),
    "response.code_interpreter_call.in_progress": ("item_id", "output_index"),
    "response.code_interpreter_call_code.delta": ("item_id", "output_index", "delta"),
    "response.code_interpreter_call_code.done": ("item_id", "output_index", "code"),
    "response.code_interpreter_call.interpreting": ("item_id", "output_index"),
    "response.code_interpreter_call.completed": ("item_id", "output_index"),
    "response.output_text.annotation.added": (*_AT, "annotation_index"),
    "response.web_search_call.in_progress": ("item_id", "output_index"),
    "response.web_search_call.searching": ("item_id", "output_index"),
    "response.web_search_call.completed": ("item_id", "output_index"),
    "response.mcp_list_tools.in_progress": ("item_id", "output_index"),
    "response.mcp_list_tools.completed": ("item_id", "output_index"),
    "response.mcp_list_tools.failed": ("item_id", "output_index"),
    "response.mcp_call.in_progress": ("item_id", "output_index"),
    "response.mcp_call_arguments.delta": ("item_id", "output_index", "delta"),
    "response.mcp_call_arguments.done": ("item_id", "output_index", "arguments"),
    "response.mcp_call.completed": ("item_id", "output_index"),
    "response.mcp_call.failed": ("item_id", "output_index"),
    "error": ("message",),
}
"""Every kind of event that is sent, and what the SDK requires of it beside type and number."""

SPECIFIED: dict[str, frozenset[str]] = {
    "response": frozenset(
        {
            *("id", "object", "created_at", "completed_at", "status", "incomplete_details"),
            *("model", "previous_response_id", "instructions", "output", "error", "tools"),
            *("tool_choice", "truncation", "parallel_tool_calls", "text", "top_p"),
            *("presence_penalty", "frequency_penalty", "top_logprobs", "temperature"),
            *("reasoning", "usage", "max_output_tokens", "max_tool_calls", "store"),
            *("background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key"),
        }
    ),
    "message": frozenset({"type", "id", "status", "role", "content"}),
    "reasoning": frozenset({"type", "id", "summary"}),
    "function_call": frozenset({"type", "id", "call_id", "name", "arguments", "status"}),
    "custom_tool_call": frozenset({"type", "id", "call_id", "name", "input"}),
    "output_text": frozenset({"type", "text", "annotations"}),
    "reasoning_text": frozenset({"type", "text"}),
    "error": frozenset({"code", "message", "param"}),
}
"""What the specification requires, by the kind of object."""


def refused(event: Json) -> str | None:
    """Why a strict client would not take the event; None when it would."""
    try:
        SDK.validate_json(orjson.dumps(event))
    except ValidationError as error:
        return str(error)
    for place, node in objects(event):
        missing = SPECIFIED.get(_kind(node), frozenset()) - node.keys()
        if missing:
            return f"{place}: the specification requires {sorted(missing)}"
    return None


def objects(node: object, place: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Every object in a JSON value, with its place."""
    if isinstance(node, dict):
        yield place, node
        for key, value in node.items():
            yield from objects(value, (*place, key))
    elif isinstance(node, list):
        for step, value in enumerate(node):
            yield from objects(value, (*place, step))


def _kind(node: Json) -> str:
    return str(node.get("type") or node.get("object") or "")


def required_by_sdk(event: Json) -> list[Path]:
    """The place of every key that the SDK's own types require, at any depth of this event."""
    return sorted(_required(SDK.validate_json(orjson.dumps(event)), ()), key=str)


def _required(value: object, place: Path) -> Iterator[Path]:
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            if field.is_required():
                yield (*place, name)
            yield from _required(getattr(value, name, None), (*place, name))
    elif isinstance(value, list):
        for step, inner in enumerate(value):
            yield from _required(inner, (*place, step))


def without(event: Json, place: Path) -> Json:
    """The event, less the key at a place."""
    copy: Json = orjson.loads(orjson.dumps(event))
    node: Any = copy
    for step in place[:-1]:
        node = node[step]
    del node[place[-1]]
    return copy


def accumulated(events: Iterable[Json]) -> Sequence[Json]:
    """The output that the SDK's own stream accumulator has gathered from deltas."""
    state: ResponseStreamState[Any] = ResponseStreamState(input_tools=[], text_format=omit)
    typed = [SDK.validate_json(orjson.dumps(event)) for event in events]
    for event in typed:
        state.handle_event(event)
    snapshot = state.accumulate_event(typed[-1])  # a lifecycle event changes nothing twice
    return [item.to_dict() for item in snapshot.output]

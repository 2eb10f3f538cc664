"""What Anthropic's Messages API gives: a message as a whole, and the parts of its events.

Made from the response that the log folds to; knows no log and no frame.
"""

from __future__ import annotations

from typing import Any, Literal

from trt_responses.apis.messages.hosted import (
    citation_of,
    container_of,
    requests_of,
    result_of,
    use_of,
)
from trt_responses.errors import ApiError
from trt_responses.wire.output import (
    OutputBeside,
    OutputFunctionCall,
    OutputHostedCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputSealedReasoning,
    UrlCitation,
)
from trt_responses.wire.past_calls import object_in
from trt_responses.wire.response import Response, Usage

Thoughts = Literal["shown", "omitted", "hidden"]
"""Whether a client gets thoughts, only their signatures, or neither."""

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
]
Object = dict[str, Any]

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
SERVER_KEYS = ((".server_url'", ".url'"), (".authorization'", ".authorization_token'"))
"""Keys of an MCP server in the Responses API, and here."""
OVERLOADED = 529
"""The status of an `overloaded_error`."""


def message_of(response: Response, stop: str | None, thoughts: Thoughts) -> Object:
    """A finished response as a message; `stop` is the text of the client's that ended it."""
    blocks = [block for item in response.output for block in _blocks(item, thoughts)]
    delta, usage = ending_of(response, stop)
    return begun(response) | {"content": blocks, **delta, "usage": usage}


def ending_of(response: Response, stop: str | None) -> tuple[Object, Object]:
    """What a message says at its end, and its usage."""
    delta: Object = {"stop_reason": stop_reason_of(response, stop), "stop_sequence": stop}
    usage = usage_of(response.usage)
    if (ran := requests_of(response.output)) is not None:
        usage["server_tool_use"] = ran
    if (container := container_of(response)) is not None:
        delta["container"] = container
    return delta, usage


def _blocks(item: OutputItem, thoughts: Thoughts) -> list[Object]:
    """An item as blocks: a call that the server ran has two."""
    if (use := use_of(item)) is not None:
        return [use, result_of(item)]
    block = block_of(item, thoughts)
    return [] if block is None else [block]


def begun(response: Response, prompt_tokens: int = 0) -> Object:
    """A message of which nothing is written yet."""
    return {
        "id": f"msg_{response.id.removeprefix('resp_')}",
        "type": "message",
        "role": "assistant",
        "model": response.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(prompt_tokens, 0, 0, 0),
    }


def block_of(item: OutputItem, thoughts: Thoughts) -> Object | None:
    """An item as a block; None for what the client does not get, and for a call that the server
    runs."""
    match item:
        case OutputReasoning():
            text = "".join(part.text for part in item.content)
            block = {"type": "thinking", "thinking": text if thoughts == "shown" else ""}
            return None if thoughts == "hidden" else block | {"signature": signature_of(item)}
        case OutputMessage():
            block = {"type": "text", "text": "".join(part.text for part in item.content)}
            noted = [note for part in item.content for note in part.annotations]
            notes = [citation_of(note) for note in noted if isinstance(note, UrlCitation)]
            return block | ({"citations": notes} if notes else {})
        case OutputFunctionCall():
            block = {"type": "tool_use", "id": item.call_id, "name": item.name}
            return block | {"input": _input(item.arguments)}
        case OutputHostedCall() | OutputBeside():
            return None
        case _:
            raise TypeError(f"a {item.type} is no block of a message")


def signature_of(item: OutputReasoning) -> str:
    """The signature of a thought: its sealed content."""
    return item.encrypted_content if isinstance(item, OutputSealedReasoning) else ""


def stop_reason_of(response: Response, stop: str | None) -> StopReason:
    """Why it ended."""
    if response.incomplete_details is not None:
        written = response.usage.output_tokens if response.usage else 0
        at_most = response.max_output_tokens or 0
        return "max_tokens" if written >= at_most else "model_context_window_exceeded"
    if stop is not None:
        return "stop_sequence"
    called = any(isinstance(item, OutputFunctionCall) for item in response.output)
    return "tool_use" if called else "end_turn"


def usage_of(usage: Usage | None) -> Object:
    """Tokens as Anthropic counts them: the input is what no cache had."""
    if usage is None:
        return _usage(0, 0, 0, 0)
    cached, thought = usage.input_tokens_details, usage.output_tokens_details
    return _usage(
        usage.input_tokens - cached.cached_tokens,
        cached.cached_tokens,
        usage.output_tokens,
        thought.reasoning_tokens,
    )


def error_of(error: ApiError, request_id: str | None = None) -> Object:
    """An error as Anthropic writes it. There is no key for its place, so the message names it."""
    message, place = error.message, error.param
    for ours, theirs in SERVER_KEYS if "mcp_servers[" in message else ():
        message = message.replace(ours, theirs)
    if place is not None and place not in message:
        message = f"{place}: {message}"
    body: Object = {"type": ERROR_TYPES.get(error.status, "api_error"), "message": message}
    return {"type": "error", "error": body} | ({"request_id": request_id} if request_id else {})


def _usage(read: int, cached: int, written: int, thought: int) -> Object:
    return {
        "input_tokens": read,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": written,
        "output_tokens_details": {"thinking_tokens": thought},
    }


def _input(arguments: str) -> Object:
    """A call's arguments as an object: of a call that was cut, as far as it goes."""
    read = object_in(arguments, partial=True)
    return {"arguments": arguments} if read is None else read

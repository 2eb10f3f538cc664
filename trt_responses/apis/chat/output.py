"""What chat completions give: a completion as a whole, and the parts of its chunks.

Made from the response that the log folds to; knows no log and no frame.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from trt_responses.apis.chat.hosted import ran
from trt_responses.wire.output import (
    OutputActionCall,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    TokenLogprob,
    UrlCitation,
)
from trt_responses.wire.response import Response, Usage

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
Object = dict[str, Any]


def completion_of(response: Response, *, thought: Sequence[str]) -> Object:
    """A finished response as a chat completion, with its thought in these fields."""
    choice = {
        "index": 0,
        "message": _message(response.output, thought=thought),
        "logprobs": _logprobs_of(response.output),
        "finish_reason": finish_of(response),
    }
    return {
        "id": chat_id(response),
        "object": "chat.completion",
        "created": response.created_at,
        "model": response.model,
        "choices": [choice],
        "usage": usage_of(response.usage),
        "service_tier": response.service_tier,
        "system_fingerprint": None,
    }


def chat_id(response: Response) -> str:
    """The completion's id, made of the response's."""
    return f"chatcmpl-{response.id.removeprefix('resp_')}"


def finish_of(response: Response) -> FinishReason:
    """Why it ended. Cut in a call, it is `length` as well: the call is not whole."""
    if response.incomplete_details is not None:
        filtered = response.incomplete_details.reason == "content_filter"
        return "content_filter" if filtered else "length"
    return "tool_calls" if any(map(call_of, response.output)) else "stop"


def usage_of(usage: Usage | None) -> Object | None:
    """The tokens as chat completions count them."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.input_tokens_details.cached_tokens,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def call_of(item: OutputItem) -> Object | None:
    """An item as an entry of `tool_calls`; None for what is no call."""
    match item:
        case OutputFunctionCall():
            function = {"name": item.name, "arguments": item.arguments}
            return {"id": item.call_id, "type": "function", "function": function}
        case OutputActionCall(type="custom_tool_call"):
            custom = {key: vars(item)[key] for key in ("name", "input")}
            return {"id": item.call_id, "type": "custom", "custom": custom}
        case _:
            return None


def executed(item: OutputItem) -> Object | None:
    """A call that the server ran, as Groq's clients read it; None for what is none."""
    if (call := ran(item)) is None:
        return None
    arguments = json.dumps(call.input, ensure_ascii=False)
    tool = {"type": call.kind, "arguments": arguments, "output": call.output, **call.facts}
    return tool | ({"search_results": {"results": call.found}} if call.found else {})


def annotations_of(output: Sequence[OutputItem]) -> list[Object]:
    """The citations of all messages, where they stand in the text of all."""
    found: list[Object] = []
    before = 0
    for part in (one.content[0] for one in output if isinstance(one, OutputMessage)):
        for note in part.annotations:
            if not isinstance(note, UrlCitation):
                continue  # the API has no other kind
            places = {
                "start_index": note.start_index + before,
                "end_index": note.end_index + before,
                "url": note.url,
                "title": note.title,
            }
            found.append({"type": "url_citation", "url_citation": places})
        before += len(part.text)
    return found


def text_of(output: Sequence[OutputItem]) -> str:
    """The text of all messages: a preamble and an answer are joined."""
    messages = (item for item in output if isinstance(item, OutputMessage))
    return "".join(message.content[0].text for message in messages)


def logprobs_of(entries: Sequence[TokenLogprob]) -> Object:
    """The log probabilities of a choice."""
    return {"content": list(entries), "refusal": None}


def _message(output: Sequence[OutputItem], *, thought: Sequence[str]) -> Object:
    """The response's items as one message."""
    text = text_of(output)
    calls = [call for item in output if (call := call_of(item)) is not None]
    message: Object = {
        "role": "assistant",
        "content": text if text or not calls else None,
        "refusal": None,
        "annotations": annotations_of(output),
    }
    if tools := [tool for item in output if (tool := executed(item)) is not None]:
        message["executed_tools"] = [{"index": at, **tool} for at, tool in enumerate(tools)]
    thoughts = [
        part.text for item in output if isinstance(item, OutputReasoning) for part in item.content
    ]
    if thoughts:
        message |= dict.fromkeys(thought, "".join(thoughts))
    return message | ({"tool_calls": calls} if calls else {})


def _logprobs_of(output: Sequence[OutputItem]) -> Object | None:
    entries = [
        entry
        for item in output
        if isinstance(item, OutputMessage)
        for part in item.content
        for entry in part.logprobs
    ]
    return logprobs_of(entries) if entries else None

"""Calls and their results as messages."""

from __future__ import annotations

from trt_responses.language.messages import Message

JSON_CONSTRAINT = "<|constrain|>json"


def call_message(callee: str, arguments: str) -> Message:
    """The message that calls a function."""
    return Message(
        "assistant",
        arguments,
        channel="commentary",
        recipient=callee,
        content_type=JSON_CONSTRAINT,
    )


def result_message(callee: str, text: str) -> Message:
    """The message of a function's result."""
    return Message("tool", text, name=callee, recipient="assistant", channel="commentary")

"""Refuses request fields that the model's dialect does not support, before any other work."""

from __future__ import annotations

from collections.abc import Iterator

from trt_responses.accept.accepted import Accepted
from trt_responses.dialect import Dialect
from trt_responses.errors import unsupported_value
from trt_responses.steering.tools import is_raw


def check_supported(accepted: Accepted, dialect: Dialect) -> None:
    """Raise `Unsupported` for the first field that the dialect does not support."""
    for place, what in _unsupported(accepted, dialect):
        raise unsupported_value(place, f"{what} (its dialect is '{dialect.name}')")


def _unsupported(accepted: Accepted, dialect: Dialect) -> Iterator[tuple[str, str]]:
    takes = dialect.takes
    if not takes.tools:
        for built_in in accepted.built_in:
            yield built_in.place, takes.no_tools
    if accepted.prompt_ids is not None and not takes.prompt_ids:
        yield "input_ids", "this model takes text, and no ids"
    for tool in accepted.tools:
        if not takes.tools:
            yield tool.place, takes.no_tools
        elif is_raw(tool) and not takes.raw_calls:
            yield f"{tool.place}.format", "this model writes calls in one form alone, and no other"
    if not takes.thoughts and accepted.effort not in (None, "none"):
        yield "reasoning.effort", "this model does not think before it answers"
    if not takes.thoughts and accepted.thought is not None and accepted.thought.tokens:
        yield accepted.thought.place, "this model does not think before it answers"

"""What a model is told, as values: messages, and what stands before them. No ids and no marks.

How they are written is each dialect's own. Names and channels are Harmony's, for every dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from trt_responses.frozen import bytes_of, dataclass

FUNCTIONS = "functions."
"""The beginning of a recipient that names a client's function."""

Role = Literal["user", "assistant", "developer", "tool"]
Effort = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. A tool's `name` is its author; a `recipient` makes an assistant's a call."""

    role: Role
    text: str
    name: str | None = None
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class Namespace:
    """The tools of the server's own that stand under one name, described in words alone."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class System:
    """What the server says of the model and of the day."""

    identity: str
    knowledge_cutoff: str | None
    date: str | None
    effort: Effort
    has_function_tools: bool
    namespaces: tuple[Namespace, ...] = ()
    thinks: bool = True
    """Whether the model is to think at all, where its dialect can say so."""


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool as the model is told of it."""

    name: str
    description: str
    parameters: Mapping[str, object] | None


class Functions(tuple[FunctionTool, ...]):
    """Functions that many prompts tell of, and what they say as bytes, which is made once."""

    @cached_property
    def content(self) -> bytes:
        """Raises a `ValueError` where nesting is too deep."""
        return bytes_of([(tool.name, tool.description, tool.parameters) for tool in self])


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """A JSON schema that the answer is to follow, as the model is told of it."""

    name: str
    description: str | None
    schema: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Developer:
    """What the request says before its messages."""

    instructions: str | None
    tools: tuple[FunctionTool, ...] = ()
    response_format: ResponseFormat | None = None

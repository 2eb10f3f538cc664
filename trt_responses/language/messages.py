"""A prompt's content as values: messages and their preface. No ids and no marks.

Each dialect renders them its own way. Names and channels are Harmony's, for every dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from trt_responses.frozen import bytes_of, dataclass

FUNCTIONS = "functions."
"""The prefix of a recipient that names a client's function."""

Role = Literal["user", "assistant", "developer", "tool"]
Effort = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. A tool result's `name` is the tool; an assistant's message with a `recipient` is
    a call."""

    role: Role
    text: str
    name: str | None = None
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace of built-in tools, described in prose."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class System:
    """The content of the system message: model identity, date, effort and built-in tools."""

    identity: str
    knowledge_cutoff: str | None
    date: str | None
    effort: Effort
    has_function_tools: bool
    namespaces: tuple[Namespace, ...] = ()
    thinks: bool = True
    """Whether the model may reason, if its dialect can switch that."""


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function tool as the prompt describes it."""

    name: str
    description: str
    parameters: Mapping[str, object] | None


class Functions(tuple[FunctionTool, ...]):
    """Function tools shared by many prompts, with memoised bytes of their content."""

    @cached_property
    def content(self) -> bytes:
        """The content as bytes. Raises a `ValueError` if nesting is too deep."""
        return bytes_of([(tool.name, tool.description, tool.parameters) for tool in self])


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The JSON schema of the answer, as the prompt describes it."""

    name: str
    description: str | None
    schema: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Developer:
    """The content of the developer message: instructions, tools and answer format."""

    instructions: str | None
    tools: tuple[FunctionTool, ...] = ()
    response_format: ResponseFormat | None = None


NOTHING = Developer(None)
"""The developer message that most requests leave out."""

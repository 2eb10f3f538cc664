"""The API's words for which tools a response may or must call, and for the form of its answer.

Knows no tool of the request: whether a name is one of them is judged when the request is accepted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from trt_responses.wire.base import ByType, ClosedObject, ListOf, NonEmpty
from trt_responses.wire.tools import Name, Schema


class NamedTool(ClosedObject):
    """One tool that must be called, or one of those that may be."""

    type: Literal["function", "custom"]
    name: NonEmpty


BuiltIn = Literal[
    "code_interpreter",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
]


class BuiltInChoice(ClosedObject):
    """A tool of the server's that must be called, or one of those that may be."""

    type: BuiltIn


class ActionChoice(ClosedObject):
    """A tool of the API's own that the client runs, which has no name but its kind."""

    type: Literal["shell", "local_shell", "apply_patch"]


class McpChoice(ClosedObject):
    """The tools of an MCP server, or one of them."""

    type: Literal["mcp"]
    server_label: NonEmpty
    name: str | None = None


TYPES = ("function", "custom", "mcp", "shell", "local_shell", "apply_patch", *get_args(BuiltIn))
"""Of tools that may be chosen."""
ToolOfRequest = Annotated[NamedTool | ActionChoice | McpChoice | BuiltInChoice, ByType(*TYPES)]


class AllowedTools(ClosedObject):
    """The tools that may be called, or of which one must be."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[ListOf[ToolOfRequest], Field(min_length=1)]


Mode = Literal["none", "auto", "required"]


class ByChoice(ByType):
    """Tells the kinds of a tool choice apart, the first of which is a mode."""

    def tagged(self, kinds: tuple[Any, ...]) -> dict[str, Any]:
        return {"~mode": kinds[0], **super().tagged(kinds[1:])}

    def fault(self, tags: Collection[str]) -> tuple[str, str]:
        names = ", ".join(map(repr, (*TYPES, "allowed_tools")))
        message = "should be 'none', 'auto', 'required', or an object whose type is one of "
        return "unknown_choice", message + names

    def _which(self, value: Any) -> str | None:
        if isinstance(value, str):
            return "~mode" if value in get_args(Mode) else None
        return super()._which(value)


ToolChoice = Annotated[
    Mode | NamedTool | ActionChoice | McpChoice | BuiltInChoice | AllowedTools, ByChoice()
]


class PlainText(ClosedObject):
    """An answer in any text."""

    type: Literal["text"] = "text"


class JsonObject(ClosedObject):
    """An answer that is some JSON object."""

    type: Literal["json_object"]


class JsonSchema(ClosedObject):
    """An answer that follows a JSON schema."""

    type: Literal["json_schema"]
    name: Name
    schema_: Annotated[Schema, Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


TextFormat = Annotated[PlainText | JsonObject | JsonSchema, ByType(untyped="text")]

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

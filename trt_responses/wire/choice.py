"""The API's words for which tools a response may or must call, and for the form of its answer.

Knows no tool of the request: whether a name is one of them is judged when the request is accepted.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from trt_responses.wire.base import ClosedObject, ListOf, NonEmpty, by_type, type_named
from trt_responses.wire.tools import Name, Schema


class NamedTool(ClosedObject):
    """One tool that must be called, or one of those that may be."""

    type: Literal["function", "custom"]
    name: NonEmpty


class BuiltInChoice(ClosedObject):
    """A tool of the server's that must be called, or one of those that may be."""

    type: Literal[
        "code_interpreter",
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    ]


BUILT_IN = (
    "code_interpreter",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
)


class ActionChoice(ClosedObject):
    """A tool of the API's own that the client runs, which has no name but its kind."""

    type: Literal["shell", "local_shell", "apply_patch"]


class McpChoice(ClosedObject):
    """The tools of an MCP server, or one of them."""

    type: Literal["mcp"]
    server_label: NonEmpty
    name: str | None = None


TAGS = (
    {"function": "~function", "custom": "~custom", "mcp": "~mcp"}
    | dict.fromkeys(("shell", "local_shell", "apply_patch"), "~action")
    | dict.fromkeys(BUILT_IN, "~built_in")
)
"""Which model reads a choice of each type."""


def _tool_kind(value: Any) -> str | None:
    return TAGS.get(type_named(value) or "")


ToolOfRequest = Annotated[
    Annotated[NamedTool, Tag("~function")]
    | Annotated[NamedTool, Tag("~custom")]
    | Annotated[ActionChoice, Tag("~action")]
    | Annotated[McpChoice, Tag("~mcp")]
    | Annotated[BuiltInChoice, Tag("~built_in")],
    Discriminator(
        _tool_kind,
        custom_error_type="unknown_type",
        custom_error_message="should be an object whose type is one of "
        + ", ".join(map(repr, TAGS)),
    ),
]


class AllowedTools(ClosedObject):
    """The tools that may be called, or of which one must be."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[ListOf[ToolOfRequest], Field(min_length=1)]


Mode = Literal["none", "auto", "required"]
CHOICES = (*TAGS, "allowed_tools")


def _choice_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "~mode" if value in ("none", "auto", "required") else None
    kind = type_named(value)
    return TAGS.get(kind or "") or ("~allowed_tools" if kind == "allowed_tools" else None)


BY_CHOICE = Discriminator(
    _choice_kind,
    custom_error_type="unknown_choice",
    custom_error_message="should be 'none', 'auto', 'required', or an object whose type is one "
    "of " + ", ".join(map(repr, CHOICES)),
)
"""Tells the kinds of a tool choice apart."""

ToolChoice = Annotated[
    Annotated[Mode, Tag("~mode")]
    | Annotated[NamedTool, Tag("~function")]
    | Annotated[NamedTool, Tag("~custom")]
    | Annotated[ActionChoice, Tag("~action")]
    | Annotated[McpChoice, Tag("~mcp")]
    | Annotated[BuiltInChoice, Tag("~built_in")]
    | Annotated[AllowedTools, Tag("~allowed_tools")],
    BY_CHOICE,
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


TextFormat = Annotated[
    Annotated[PlainText, Tag("~text")]
    | Annotated[JsonObject, Tag("~json_object")]
    | Annotated[JsonSchema, Tag("~json_schema")],
    by_type("text", "json_object", "json_schema", untyped="text"),
]

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

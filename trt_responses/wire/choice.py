"""The API's words for which tools a response may or must call, and for the form of its answer.

Knows no tool of the request: whether a name is one of them is judged when the request is accepted.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from trt_responses.wire.base import ClosedObject, ListOf, NonEmpty, by_type


class NamedTool(ClosedObject):
    """One tool that must be called, or one of those that may be."""

    type: Literal["function", "custom"]
    name: NonEmpty


class BuiltInChoice(ClosedObject):
    """A tool of the server's that must be called, or one of those that may be."""

    type: Literal["code_interpreter"]


ToolOfRequest = Annotated[
    Annotated[NamedTool, Tag("~function")]
    | Annotated[NamedTool, Tag("~custom")]
    | Annotated[BuiltInChoice, Tag("~code_interpreter")],
    by_type("function", "custom", "code_interpreter"),
]


class AllowedTools(ClosedObject):
    """The tools that may be called, or of which one must be."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[ListOf[ToolOfRequest], Field(min_length=1)]


Mode = Literal["none", "auto", "required"]
CHOICES = ("function", "custom", "code_interpreter", "allowed_tools")


def _choice_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "~mode" if value in ("none", "auto", "required") else None
    kind = value.get("type") if isinstance(value, dict) else None
    return f"~{kind}" if kind in CHOICES else None


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
    | Annotated[BuiltInChoice, Tag("~code_interpreter")]
    | Annotated[AllowedTools, Tag("~allowed_tools")],
    BY_CHOICE,
]


class PlainText(ClosedObject):
    type: Literal["text"] = "text"


class JsonObject(ClosedObject):
    type: Literal["json_object"]

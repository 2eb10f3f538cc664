"""Which tools a response may or must call, and what form its answer has: the API's words for it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag


class Whole(BaseModel):
    """An object that means nothing else by the keys it does not know: they are faults."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class NamedTool(Whole):
    type: Literal["function", "custom"]
    name: Annotated[str, Field(min_length=1)]


class AllowedTools(Whole):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], Field(min_length=1)]


Mode = Literal["none", "auto", "required"]


def _choice_kind(value: Any) -> str | None:
    if isinstance(value, str):
        return "~mode" if value in ("none", "auto", "required") else None
    kind = value.get("type") if isinstance(value, dict) else None
    return f"~{kind}" if kind in ("function", "custom", "allowed_tools") else None


ToolChoice = Annotated[
    Annotated[Mode, Tag("~mode")]
    | Annotated[NamedTool, Tag("~function")]
    | Annotated[NamedTool, Tag("~custom")]
    | Annotated[AllowedTools, Tag("~allowed_tools")],
    Discriminator(
        _choice_kind,
        custom_error_type="unknown_choice",
        custom_error_message="should be 'none', 'auto', 'required', or an object whose type is one "
        "of 'function', 'custom', 'allowed_tools'",
    ),
]


class PlainText(Whole):
    type: Literal["text"] = "text"


class JsonObject(Whole):
    type: Literal["json_object"]

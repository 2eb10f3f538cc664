"""The API's words for which tools a response may or must call, and for the form of its answer.

Knows no tool of the request: whether a name is one of them is judged when the request is accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field

from trt_responses.wire.base import ByType, ClosedObject, InstalledKinds, ListOf, NonEmpty
from trt_responses.wire.fields import honoured
from trt_responses.wire.tools import Name, Schema


class NamedTool(ClosedObject):
    """One tool that must be called, or one of those that may be."""

    type: Literal["function", "custom"]
    name: NonEmpty


class FolderChoice(ClosedObject):
    """A tool of the API's own that must be called, or one of those that may be, of a kind that a
    folder brings."""

    type: str

    def part(self, run_here: Sequence[Any], place: str) -> tuple[str, str | None] | None:
        """The server of tools that is meant by its label, and the tool of it if one alone is.
        `run_here` are the request's tools that the server runs. Raises for one that is not among
        them."""
        return None


CHOICES: dict[str, type[FolderChoice]] = {}
"""The choices that folders bring, by their types."""
if TYPE_CHECKING:
    Installed = FolderChoice
else:
    Installed = Any
NAMES = honoured("tool_choice.type=")
TYPES = tuple(name for name in NAMES if name != "allowed_tools")
"""Of tools that may be chosen."""
ToolOfRequest = Annotated[NamedTool | Installed, InstalledKinds(CHOICES, *TYPES)]


class AllowedTools(ClosedObject):
    """The tools that may be called, or of which one must be."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[ListOf[ToolOfRequest], Field(min_length=1)]


Mode = Literal["none", "auto", "required"]


class ByChoice(InstalledKinds):
    """Tells the kinds of a tool choice apart, the first of which is a mode."""

    def __init__(self, *names: str) -> None:
        super().__init__(CHOICES, *names)

    def tagged(self, kinds: tuple[Any, ...]) -> dict[str, Any]:
        return {"~mode": kinds[0], **super().tagged(kinds[1:])}

    def fault(self, tags: Collection[str]) -> tuple[str, str]:
        names = ", ".join(map(repr, NAMES))
        message = "should be 'none', 'auto', 'required', or an object whose type is one of "
        return "unknown_choice", message + names

    def _which(self, value: Any) -> str | None:
        if isinstance(value, str):
            return "~mode" if value in get_args(Mode) else None
        return super()._which(value)


ToolChoice = Annotated[Mode | NamedTool | Installed | AllowedTools, ByChoice(*NAMES)]


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

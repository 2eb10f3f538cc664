"""The body of Anthropic's `POST /v1/messages`, and of `POST /v1/messages/count_tokens`.

Types and ranges live here; what a field means for this server is in `fields.py`, and what a request
asks for is read out of it in `apis/messages/accept.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter

from trt_responses.wire.base import (
    ClientObject,
    ListOf,
    Lists,
    NonEmpty,
    Options,
    by_type,
    type_named,
)
from trt_responses.wire.items import TEXT_OR_LIST
from trt_responses.wire.request import Count
from trt_responses.wire.tools import Schema

# --- blocks --------------------------------------------------------------------------------------


class TextBlock(ClientObject):
    """A text."""

    type: Literal["text"]
    text: str


class ImageBlock(ClientObject):
    """What a text model cannot read."""

    type: Literal["image"]


class TextSource(ClientObject):
    """A document's content, as text."""

    type: Literal["text"]
    data: str


class BlocksSource(ClientObject):
    """A document's content, as blocks."""

    type: Literal["content"]
    content: Annotated[
        Annotated[str, Tag("~text")]
        | Annotated[
            ListOf[
                Annotated[
                    Annotated[TextBlock, Tag("~text")] | Annotated[ImageBlock, Tag("~image")],
                    by_type("text", "image"),
                ]
            ],
            Tag("~list"),
        ],
        TEXT_OR_LIST,
    ]


class FileSource(ClientObject):
    """A file of any kind, which a text model cannot read."""

    type: Literal["base64", "url", "file"]


class Document(ClientObject):
    """A document that the user gives."""

    type: Literal["document"]
    source: Annotated[
        Annotated[TextSource, Tag("~text")]
        | Annotated[BlocksSource, Tag("~content")]
        | Annotated[FileSource, Tag("~base64")]
        | Annotated[FileSource, Tag("~url")]
        | Annotated[FileSource, Tag("~file")],
        by_type("text", "content", "base64", "url", "file"),
    ]
    title: str | None = None
    context: str | None = None


class SearchResult(ClientObject):
    """A result of a search that the client ran."""

    type: Literal["search_result"]
    source: str
    title: str
    content: ListOf[TextBlock]


ResultPart = Annotated[
    Annotated[TextBlock, Tag("~text")]
    | Annotated[ImageBlock, Tag("~image")]
    | Annotated[Document, Tag("~document")]
    | Annotated[SearchResult, Tag("~search_result")],
    by_type("text", "image", "document", "search_result"),
]


class ToolResult(ClientObject):
    """What a tool of the client gave."""

    type: Literal["tool_result"]
    tool_use_id: NonEmpty
    content: (
        Annotated[
            Annotated[str, Tag("~text")] | Annotated[ListOf[ResultPart], Tag("~list")],
            TEXT_OR_LIST,
        ]
        | None
    ) = None
    is_error: bool | None = None


class ToolUse(ClientObject):
    """A call of a tool of the client."""

    type: Literal["tool_use"]
    id: NonEmpty
    name: NonEmpty
    input: dict[str, Any]


class Thinking(ClientObject):
    """A thought. Its signature is what the server gave with it."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class RedactedThinking(ClientObject):
    """A thought that is not shown."""

    type: Literal["redacted_thinking"]
    data: str


UserBlock = Annotated[
    Annotated[TextBlock, Tag("~text")]
    | Annotated[ImageBlock, Tag("~image")]
    | Annotated[Document, Tag("~document")]
    | Annotated[SearchResult, Tag("~search_result")]
    | Annotated[ToolResult, Tag("~tool_result")],
    by_type("text", "image", "document", "search_result", "tool_result"),
]
AssistantBlock = Annotated[
    Annotated[TextBlock, Tag("~text")]
    | Annotated[Thinking, Tag("~thinking")]
    | Annotated[RedactedThinking, Tag("~redacted_thinking")]
    | Annotated[ToolUse, Tag("~tool_use")],
    by_type("text", "thinking", "redacted_thinking", "tool_use"),
]
TextOrBlocks = Annotated[
    Annotated[str, Tag("~text")] | Annotated[ListOf[TextBlock], Tag("~list")], TEXT_OR_LIST
]

# --- messages ------------------------------------------------------------------------------------


class UserMessage(ClientObject):
    """A message of the user's, or results of tools."""

    role: Literal["user"]
    content: Annotated[
        Annotated[str, Tag("~text")] | Annotated[ListOf[UserBlock], Tag("~list")], TEXT_OR_LIST
    ]


class AssistantMessage(ClientObject):
    """A message that the model wrote before."""

    role: Literal["assistant"]
    content: Annotated[
        Annotated[str, Tag("~text")] | Annotated[ListOf[AssistantBlock], Tag("~list")],
        TEXT_OR_LIST,
    ]


class SystemMessage(ClientObject):
    """What the operator of the client says in the middle of a conversation."""

    role: Literal["system"]
    content: TextOrBlocks


def _by_role(value: Any) -> str | None:
    role = value.get("role") if isinstance(value, dict) else getattr(value, "role", None)
    return f"~{role}" if role in ("user", "assistant", "system") else None


Message = Annotated[
    Annotated[UserMessage, Tag("~user")]
    | Annotated[AssistantMessage, Tag("~assistant")]
    | Annotated[SystemMessage, Tag("~system")],
    Discriminator(
        _by_role,
        custom_error_type="unknown_role",
        custom_error_message="should be an object whose role is one of 'user', 'assistant', "
        "'system'",
    ),
]

# --- tools ---------------------------------------------------------------------------------------

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]


class CustomTool(Options):
    """A tool that the client runs; with no type, too."""

    type: Literal["custom"] | None = None
    name: Name
    input_schema: Schema
    description: str | None = None
    strict: bool | None = None


class OtherTool(Options):
    """A tool of Anthropic's own making: dropped, or named when it is refused."""

    type: str


def _tool_kind(value: Any) -> str:
    kind = type_named(value)
    return "~custom" if kind in (None, "custom") else "~other"


Tool = Annotated[
    Annotated[CustomTool, Tag("~custom")] | Annotated[OtherTool, Tag("~other")],
    Discriminator(_tool_kind),
]


class AnyChoice(Options):
    """The model may choose, must call some tool, or must call none."""

    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: bool | None = None


class NamedChoice(Options):
    """One tool that must be called."""

    type: Literal["tool"]
    name: NonEmpty
    disable_parallel_tool_use: bool | None = None


ToolChoice = Annotated[
    Annotated[AnyChoice, Tag("~auto")]
    | Annotated[AnyChoice, Tag("~any")]
    | Annotated[AnyChoice, Tag("~none")]
    | Annotated[NamedChoice, Tag("~tool")],
    by_type("auto", "any", "tool", "none"),
]

# --- thinking, the form of the answer, and the rest ----------------------------------------------

Display = Literal["summarized", "omitted"]


class BudgetedThinking(Options):
    """Thoughts are shown, and have a budget."""

    type: Literal["enabled"]
    budget_tokens: Count
    display: Display | None = None


class FreeThinking(Options):
    """Thoughts are shown."""

    type: Literal["adaptive", "between_tools"]
    display: Display | None = None


class NoThinking(Options):
    """Thoughts are switched off."""

    type: Literal["disabled"]


ThinkingChoice = Annotated[
    Annotated[BudgetedThinking, Tag("~enabled")]
    | Annotated[FreeThinking, Tag("~adaptive")]
    | Annotated[FreeThinking, Tag("~between_tools")]
    | Annotated[NoThinking, Tag("~disabled")],
    by_type("enabled", "adaptive", "between_tools", "disabled"),
]


class JsonFormat(Options):
    """An answer that follows a JSON schema."""

    type: Literal["json_schema"]
    schema_: Annotated[Schema, Field(alias="schema")]


class OutputConfig(Options):
    """The form of the answer, and its effort."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


StopText = Annotated[str, Field(min_length=1, max_length=256)]


class CountRequest(Options):
    """A conversation whose tokens are to be counted. Null always means the default."""

    lists = Lists(
        {"messages": TypeAdapter(Message), "tools": TypeAdapter(Tool)},
        lambda one: one.get("role") or one.get("type"),
        {
            ("user", "content"): TypeAdapter(UserBlock),
            ("assistant", "content"): TypeAdapter(AssistantBlock),
            ("system", "content"): TypeAdapter(TextBlock),
            ("tool_result", "content"): TypeAdapter(ResultPart),
        },
    )

    model: NonEmpty
    messages: Annotated[ListOf[Message], Field(min_length=1)]
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None
    system: TextOrBlocks | None = None
    thinking: ThinkingChoice | None = None
    tool_choice: ToolChoice | None = None
    tools: ListOf[Tool] | None = None


class MessagesRequest(CountRequest):
    """A request for the next message of a conversation."""

    max_tokens: Count
    stop_sequences: Annotated[ListOf[StopText], Field(max_length=16)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None

    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None

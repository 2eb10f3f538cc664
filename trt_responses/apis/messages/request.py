"""The body of Anthropic's `POST /v1/messages`, and of `POST /v1/messages/count_tokens`.

Types and ranges live here; what a field means for this server is in `fields.py`, and what a request
asks for is read out of it in `apis/messages/accept.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from trt_responses.apis.chat.request import FEW, StopText
from trt_responses.wire.base import (
    TEXT_OR_OBJECT,
    ByType,
    ClientObject,
    Kinds,
    Label,
    ListOf,
    Lists,
    NonEmpty,
    Options,
    TextOrListOf,
    named,
)
from trt_responses.wire.request import Count
from trt_responses.wire.tools import Schema

FORMS: dict[type, str] = {str: "~text", dict: "~object", list: "~list"}
BY_FORM = Kinds(
    lambda value: FORMS.get(type(value)), *FORMS.values(), forms="a string, an object or a list"
)

# --- blocks --------------------------------------------------------------------------------------


class TextBlock(ClientObject):
    """A text."""

    type: Literal["text"]
    text: str
    citations: Annotated[ListOf[dict[str, Any]], FEW] | None = None


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
    content: TextOrListOf[Annotated[TextBlock | ImageBlock, ByType()]]


class FileSource(ClientObject):
    """A file of any kind, which a text model cannot read."""

    type: Literal["base64", "url", "file"]


class Document(ClientObject):
    """A document that the user gives."""

    type: Literal["document"]
    source: Annotated[TextSource | BlocksSource | FileSource, ByType()]
    title: str | None = None
    context: str | None = None


class SearchResult(ClientObject):
    """A result of a search that the client ran."""

    type: Literal["search_result"]
    source: str
    title: str
    content: ListOf[TextBlock]


ResultPart = Annotated[TextBlock | ImageBlock | Document | SearchResult, ByType()]


class ToolResult(ClientObject):
    """What a tool of the client gave."""

    type: Literal["tool_result"]
    tool_use_id: NonEmpty
    content: TextOrListOf[ResultPart] | None = None
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


class ServerToolUse(ClientObject):
    """A call of a tool that a server ran."""

    type: Literal["server_tool_use"]
    id: NonEmpty
    name: Literal["web_search", "web_fetch", "code_execution"]
    input: dict[str, Any]


class McpToolUse(ClientObject):
    """A call of an MCP server's tool that a server made."""

    type: Literal["mcp_tool_use"]
    id: NonEmpty
    name: Label
    server_name: Label
    input: dict[str, Any]


class ServerResult(ClientObject):
    """What such a call gave."""

    type: Literal[
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "mcp_tool_result",
    ]
    tool_use_id: NonEmpty
    content: (
        Annotated[str | dict[str, Any] | Annotated[ListOf[dict[str, Any]], FEW], BY_FORM] | None
    ) = None
    is_error: bool | None = None


UserBlock = Annotated[TextBlock | ImageBlock | Document | SearchResult | ToolResult, ByType()]
AssistantBlock = Annotated[
    TextBlock | Thinking | RedactedThinking | ToolUse | ServerToolUse | McpToolUse | ServerResult,
    ByType(),
]
TextOrBlocks = TextOrListOf[TextBlock]

# --- messages ------------------------------------------------------------------------------------


class UserMessage(ClientObject):
    """A message of the user's, or results of tools."""

    role: Literal["user"]
    content: TextOrListOf[UserBlock]


class AssistantMessage(ClientObject):
    """A message that the model wrote before."""

    role: Literal["assistant"]
    content: TextOrListOf[AssistantBlock]


class SystemMessage(ClientObject):
    """What the operator of the client says in the middle of a conversation."""

    role: Literal["system"]
    content: TextOrBlocks


Message = Annotated[UserMessage | AssistantMessage | SystemMessage, ByType(key="role")]

# --- tools ---------------------------------------------------------------------------------------

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
ServerName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class CustomTool(Options):
    """A tool that the client runs; with no type, too."""

    type: Literal["custom"] | None = None
    name: Name
    input_schema: Schema
    description: str | None = None
    strict: bool | None = None


class ServerTool(Options):
    """A tool of Anthropic's own making that has an equal here."""

    type: str
    name: str | None = None
    allowed_domains: ListOf[str] | None = None
    blocked_domains: ListOf[str] | None = None
    max_uses: Annotated[int, Field(ge=1)] | None = None
    user_location: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        """The name of its equal."""
        return "code_interpreter" if self.type.startswith("code_execution") else "web_search"


class ToolConfig(Options):
    """Whether tools of an MCP server are offered."""

    enabled: bool | None = None


class McpToolset(Options):
    """The tools of an MCP server: one that the request names, or the operator's of that name."""

    type: Literal["mcp_toolset"]
    mcp_server_name: ServerName
    default_config: ToolConfig | None = None
    configs: Annotated[dict[str, ToolConfig], FEW] | None = None
    tools: ListOf[dict[str, Any]] | None = None


class OlderToolset(Options):
    """The same in an older form, at the server."""

    enabled: bool | None = None
    allowed_tools: ListOf[str] | None = None


class McpServer(Options):
    """An MCP server of the client's."""

    type: Literal["url"]
    url: Annotated[str, Field(max_length=4096)]
    name: ServerName
    authorization_token: str | None = Field(None, max_length=16384, repr=False)
    tool_configuration: OlderToolset | None = None


class Container(Options):
    """Where code runs."""

    id: str | None = None
    skills: ListOf[dict[str, Any]] | None = None


class OtherTool(Options):
    """A tool of Anthropic's own making: dropped, or named when it is refused."""

    type: str


def _tool_kind(value: Any) -> str:
    kind = named(value)
    if kind in (None, "custom"):
        return "~custom"
    if kind == "mcp_toolset":
        return "~mcp"
    return "~server" if kind is not None and kind.startswith(OURS) else "~other"


OURS = ("web_search_2", "web_fetch_2", "code_execution_2")
"""The beginnings of the types of tools that have an equal here; their dates follow."""
Tool = Annotated[
    CustomTool | McpToolset | ServerTool | OtherTool,
    Kinds(_tool_kind, "~custom", "~mcp", "~server", "~other"),
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


ToolChoice = Annotated[AnyChoice | NamedChoice, ByType("auto", "any", "tool", "none")]

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


ThinkingChoice = Annotated[BudgetedThinking | FreeThinking | NoThinking, ByType()]


class JsonFormat(Options):
    """An answer that follows a JSON schema."""

    type: Literal["json_schema"]
    schema_: Annotated[Schema, Field(alias="schema")]


class OutputConfig(Options):
    """The form of the answer, and its effort."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


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

    model: NonEmpty = ""
    messages: Annotated[ListOf[Message], Field(min_length=1)]
    container: Annotated[str | Container, TEXT_OR_OBJECT] | None = None
    mcp_servers: Annotated[ListOf[McpServer], Field(max_length=20)] | None = None
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

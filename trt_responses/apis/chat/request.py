"""The body of `POST /v1/chat/completions`, straight from JSON.

Types and ranges live here; what a field means for this server is in `fields.py`, and what a request
asks for is read out of it in `apis/chat/accept.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from trt_responses.wire.base import (
    TEXT_OR_LIST,
    ByType,
    ClientObject,
    Label,
    ListOf,
    Lists,
    NonEmpty,
    Options,
    TextOrListOf,
)
from trt_responses.wire.choice import ByChoice, Mode
from trt_responses.wire.choice import Effort as Effort
from trt_responses.wire.request import Count, Metadata, Penalty
from trt_responses.wire.tools import Name, PlainInput, Schema

FEW = Field(max_length=1000)
"""Of lists that are read in one go."""

# --- messages ------------------------------------------------------------------------------------


class TextPart(ClientObject):
    """A text in a message."""

    type: Literal["text"]
    text: str


class RefusalPart(ClientObject):
    """A refusal in an assistant's message, read as text."""

    type: Literal["refusal"]
    refusal: str


MediaKind = Literal["image_url", "input_audio", "file"]


class MediaPart(ClientObject):
    """What a text model cannot read."""

    type: MediaKind


Part = Annotated[TextPart | RefusalPart | MediaPart, ByType()]
TextOrParts = TextOrListOf[Part]


class Instructions(ClientObject):
    """What the operator of the client says to the model. Both names mean the same here."""

    role: Literal["system", "developer"]
    content: TextOrParts


class UserMessage(ClientObject):
    """A message of the user's."""

    role: Literal["user"]
    content: TextOrParts


class FunctionOfCall(ClientObject):
    """The name and the arguments of a call."""

    name: NonEmpty
    arguments: str = ""


class FunctionCall(ClientObject):
    """A call of a function."""

    id: NonEmpty
    type: Literal["function"] = "function"
    function: FunctionOfCall


class CustomOfCall(ClientObject):
    """The name and the input of a custom tool's call."""

    name: NonEmpty
    input: str = ""


class CustomCall(ClientObject):
    """A call of a custom tool."""

    id: NonEmpty
    type: Literal["custom"]
    custom: CustomOfCall


ToolCall = Annotated[FunctionCall | CustomCall, ByType(untyped="function")]


class ExecutedTool(ClientObject):
    """A call that a server ran before it answered."""

    type: str
    arguments: str = ""
    output: str | None = None
    name: Label = "tool"
    server_label: Label = "server"


class AssistantMessage(ClientObject):
    """What the model wrote before. Its thought comes back under either name."""

    role: Literal["assistant"]
    content: TextOrParts | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    annotations: Annotated[ListOf[dict[str, Any]], FEW] | None = None
    executed_tools: Annotated[ListOf[ExecutedTool], FEW] | None = None
    tool_calls: ListOf[ToolCall] | None = None


class ToolMessage(ClientObject):
    """The result of a call."""

    role: Literal["tool"]
    tool_call_id: NonEmpty
    content: TextOrParts


Message = Annotated[Instructions | UserMessage | AssistantMessage | ToolMessage, ByType(key="role")]

# --- tools ---------------------------------------------------------------------------------------


class Function(Options):
    """The description of a function."""

    name: Name
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class FunctionTool(Options):
    """A function that the model may call."""

    type: Literal["function"]
    function: Function


class Grammar(Options):
    """A grammar and the language it is written in."""

    syntax: Literal["lark", "regex"]
    definition: str


class GrammarInput(Options):
    """The format of an input that follows a grammar."""

    type: Literal["grammar"]
    grammar: Grammar


class Custom(Options):
    """The description of a custom tool."""

    name: Name
    description: str | None = None
    format: Annotated[PlainInput | GrammarInput, ByType()] | None = None


class CustomTool(Options):
    """A custom tool that the model may call."""

    type: Literal["custom"]
    custom: Custom


class ServerTool(Options):
    """A tool that the server runs, with the fields that it has in the Responses API."""

    type: Literal[
        "browser_search",
        "code_interpreter",
        "mcp",
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    ]

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return [("type", self.type)]  # others may be secrets


Tool = Annotated[FunctionTool | CustomTool | ServerTool, ByType()]


class NearTheUser(Options):
    """The place where the user is, roughly."""

    type: Literal["approximate"] = "approximate"
    approximate: dict[str, Any] | None = None


class WebSearchOptions(Options):
    """Options of a search in the web, which is offered by them."""

    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: NearTheUser | None = None


class NameOf(Options):
    """The name of a tool."""

    name: NonEmpty


class NamedFunction(Options):
    """One function that must be called."""

    type: Literal["function"]
    function: NameOf


class NamedCustom(Options):
    """One custom tool that must be called."""

    type: Literal["custom"]
    custom: NameOf


NamedTool = Annotated[NamedFunction | NamedCustom, ByType()]


class Allowed(Options):
    """The tools that may be called, and whether one must be."""

    mode: Literal["auto", "required"]
    tools: Annotated[ListOf[NamedTool], Field(min_length=1)]


class AllowedTools(Options):
    """A choice that narrows the tools to some of them."""

    type: Literal["allowed_tools"]
    allowed_tools: Allowed


ToolChoice = Annotated[Mode | NamedFunction | NamedCustom | AllowedTools, ByChoice()]

# --- the form of the answer, and the rest ---------------------------------------------------------


class PlainText(Options):
    """An answer in any text."""

    type: Literal["text"]


class JsonObject(Options):
    """An answer that is some JSON object."""

    type: Literal["json_object"]


class NamedSchema(Options):
    """A JSON schema with its name."""

    name: Name
    schema_: Annotated[Schema | None, Field(alias="schema")] = None
    description: str | None = None
    strict: bool | None = None


class JsonSchema(Options):
    """An answer that follows a JSON schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[PlainText | JsonObject | JsonSchema, ByType()]


class StreamOptions(Options):
    """Options of a stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class TemplateArguments(Options):
    """What other servers hand to a template: here the one argument that means something."""

    reasoning_effort: Effort | None = None


StopText = Annotated[str, Field(min_length=1, max_length=256)]


PART: TypeAdapter[Any] = TypeAdapter(Part)


class ChatRequest(Options):
    """What a client of chat completions may ask for. Null always means the default."""

    lists = Lists(
        {"messages": TypeAdapter(Message), "tools": TypeAdapter(Tool)},
        lambda message: message.get("role"),
        {
            **{
                (role, "content"): PART
                for role in ("system", "developer", "user", "assistant", "tool")
            },
            ("assistant", "tool_calls"): TypeAdapter(ToolCall),
        },
    )

    model: Annotated[str, Field(min_length=1)] = ""
    messages: Annotated[ListOf[Message], Field(min_length=1)]
    chat_template_kwargs: TemplateArguments | None = None
    frequency_penalty: Penalty | None = None
    logprobs: bool | None = None
    max_completion_tokens: Count | None = None
    max_tokens: Count | None = None
    metadata: Metadata | None = None
    parallel_tool_calls: bool | None = None
    presence_penalty: Penalty | None = None
    reasoning_effort: Effort | None = None
    response_format: ResponseFormat | None = None
    stop: (
        Annotated[StopText | Annotated[ListOf[StopText], Field(max_length=16)], TEXT_OR_LIST] | None
    ) = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    tool_choice: ToolChoice | None = None
    tools: ListOf[Tool] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None

    web_search_options: WebSearchOptions | None = None

    include_reasoning: bool | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None

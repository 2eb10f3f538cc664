"""The tools of a request, spelled as the API spells them.

A kind of tool without a model here runs nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from trt_responses.wire.base import (
    TEXT_OR_OBJECT,
    ByType,
    Kinds,
    ListOf,
    NonEmpty,
    Options,
    few_keys,
)

SEPARATOR = "__"
"""Between a namespace and a name, in the one name by which the model knows both."""

Domain = Annotated[str, Field(pattern=r"^\s*[\w-]+(\.[\w-]+)*\.?\s*$", max_length=253)]
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


def _echoable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema, if our JSON can hold it: a tool is given back in every snapshot."""
    try:
        orjson.dumps(schema)
    except TypeError:
        raise PydanticCustomError("int_range", "should hold integers of at most 64 bits") from None
    return schema


Schema = Annotated[dict[str, Any], AfterValidator(_echoable)]


class FunctionTool(Options):
    """A tool that is called with a JSON object."""

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class PlainInput(Options):
    """A custom tool's input that may be any text."""

    type: Literal["text"]


class GrammarInput(Options):
    """A grammar of a custom tool's input, which the model is shown; a regular expression is also
    enforced."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: str


class CustomTool(Options):
    """A tool that is called with a text: for the model a function with one string."""

    type: Literal["custom"]
    name: Name
    description: str | None = None
    format: Annotated[PlainInput | GrammarInput, ByType()] | None = None


class NamespaceTool(Options):
    """Tools under one name: the model sees them flattened, the client gets them back apart."""

    type: Literal["namespace"]
    name: Name
    description: str | None = None
    tools: ListOf[Annotated[FunctionTool | CustomTool, ByType()]]


class NetworkPolicy(Options):
    """What code in a container may reach."""

    type: NonEmpty


class AutoContainer(Options):
    """A container that the server finds or makes."""

    type: Literal["auto"]
    file_ids: ListOf[str] | None = None
    memory_limit: Literal["1g", "4g", "16g", "64g"] | None = None
    network_policy: NetworkPolicy | None = None


class CodeInterpreterTool(Options):
    """A tool that runs the model's Python, where the operator has switched it on."""

    type: Literal["code_interpreter"]
    container: Annotated[NonEmpty | AutoContainer, TEXT_OR_OBJECT] | None = None


class McpFilter(Options):
    """Some tools of an MCP server: by name, or by whether they only read."""

    tool_names: ListOf[str] | None = None
    read_only: bool | None = None


class McpApprovals(Options):
    """The calls that wait for the client, and those that do not."""

    always: McpFilter | None = None
    never: McpFilter | None = None


class McpTool(Options):
    """The tools of an MCP server: one that the operator has configured under this label, or the
    client's own. A dump of it holds no secret: it is what is stored and given back."""

    type: Literal["mcp"]
    server_label: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    server_url: Annotated[str, Field(max_length=4096)] | None = None
    server_description: str | None = None
    connector_id: str | None = None
    tunnel_id: str | None = None
    authorization: str | None = Field(None, max_length=16384, repr=False)
    headers: Annotated[dict[str, str], BeforeValidator(few_keys)] | None = Field(
        None, max_length=32, repr=False
    )
    allowed_tools: (
        Annotated[
            ListOf[str] | McpFilter,
            Kinds(
                lambda value: "~names" if isinstance(value, list) else "~some", "~names", "~some"
            ),
        ]
        | None
    ) = None
    require_approval: (
        Annotated[Literal["always", "never"] | McpApprovals, TEXT_OR_OBJECT] | None
    ) = None

    @model_serializer(mode="wrap")
    def _without_secrets(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Drops unknown keys too: any of them could be a secret."""
        known = McpTool.model_fields.keys() - SECRETS
        return {name: value for name, value in dump(self).items() if name in known}

    @property
    def secrets(self) -> dict[str, Any]:
        """What is for the server alone."""
        return {name: getattr(self, name) for name in SECRETS}


SECRETS = ("authorization", "headers")


class LocalSkill(Options):
    """A skill on the client's machine, described to the model."""

    name: str
    description: str
    path: str


class LocalEnvironment(Options):
    """The client's own machine."""

    type: Literal["local"]
    skills: ListOf[LocalSkill] | None = None


class NewContainer(Options):
    """A container of the server's, found or made."""

    type: Literal["container_auto"]
    file_ids: ListOf[str] | None = None
    memory_limit: Literal["1g", "4g", "16g", "64g"] | None = None
    network_policy: NetworkPolicy | None = None
    skills: ListOf[dict[str, Any]] | None = None


class ContainerById(Options):
    """A container of the server's that there is."""

    type: Literal["container_reference"]
    container_id: NonEmpty


class ShellTool(Options):
    """A shell: the client's, unless it asks for a container."""

    type: Literal["shell"]
    environment: Annotated[LocalEnvironment | NewContainer | ContainerById, ByType()] | None = None

    @property
    def in_container(self) -> bool:
        return isinstance(self.environment, NewContainer | ContainerById)


class LocalShellTool(Options):
    """A shell that the client runs, one command at a time: what came before `shell`."""

    type: Literal["local_shell"]


class ApplyPatchTool(Options):
    """Creates, changes and deletes files of the client's."""

    type: Literal["apply_patch"]


class ToolSearchTool(Options):
    """A search for tools that are deferred: the client's, or this server's."""

    type: Literal["tool_search"]
    execution: Literal["server", "client"] | None = None
    description: str | None = None
    parameters: Schema | None = None


class SearchFilters(Options):
    """The domains in which search may look, and those below them."""

    allowed_domains: ListOf[Domain] | None = None


class UserLocation(Options):
    """The place where the user is, roughly."""

    type: Literal["approximate"] | None = None
    country: Annotated[str, Field(pattern=r"^[A-Za-z]{2}$")] | None = None


class WebSearchTool(Options):
    """A browser that the server runs, where the operator has switched it on."""

    type: Literal[
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    ]
    filters: SearchFilters | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: UserLocation | None = None


class OtherTool(Options):
    """A tool that somebody else would run: dropped, or named when it is refused."""

    type: str


KINDS = (
    *("function", "custom", "namespace", "code_interpreter", "mcp"),
    *("shell", "local_shell", "apply_patch", "web_search", "tool_search"),
)
DATED = {
    "web_search_2025_08_26": "web_search",
    "web_search_preview": "web_search",
    "web_search_preview_2025_03_11": "web_search",
}
"""Other names of kinds."""


def kind_of(name: str) -> str:
    """The kind of a tool, whichever of its names it has."""
    return DATED.get(name, name)


Tool = Annotated[
    FunctionTool
    | CustomTool
    | NamespaceTool
    | CodeInterpreterTool
    | ShellTool
    | LocalShellTool
    | ApplyPatchTool
    | ToolSearchTool
    | WebSearchTool
    | McpTool
    | OtherTool,
    ByType(),
]


ActionTool = ShellTool | LocalShellTool | ApplyPatchTool | ToolSearchTool
"""Tools of which the API itself says what a call is, and which the client runs."""


class Placed(NamedTuple):
    """A tool that the client runs, and where in the request it stands."""

    place: str
    tool: FunctionTool | CustomTool | ActionTool
    namespace: NamespaceTool | None = None

    @property
    def name(self) -> str:
        """The name by which the model knows it."""
        if isinstance(self.tool, ActionTool):
            return self.tool.type
        if self.namespace is None:
            return self.tool.name
        return f"{self.namespace.name}{SEPARATOR}{self.tool.name}"


def runs_nowhere(tool: Tool, built_in: Collection[str]) -> bool:
    """Whether neither the client nor this server, which runs the kinds `built_in`, runs it."""
    if hosted(tool):
        return kind_of(tool.type) not in built_in
    return isinstance(tool, OtherTool)


def hosted(tool: Tool) -> bool:
    """Whether the server runs it, where the operator lets it: never the client."""
    return isinstance(tool, CodeInterpreterTool | McpTool | WebSearchTool) or (
        isinstance(tool, ShellTool) and tool.in_container
    )


def flat(tools: Iterable[Tool], within: str = "tools") -> Iterator[Placed]:
    """The tools that the client runs, those of namespaces among the others. `within` is the list in
    which they stand."""
    for number, tool in enumerate(tools):
        place = f"{within}[{number}]"
        if isinstance(tool, NamespaceTool):
            for step, inner in enumerate(tool.tools):
                yield Placed(f"{place}.tools[{step}]", inner, tool)
        elif isinstance(tool, ShellTool) and tool.in_container:
            continue
        elif isinstance(tool, FunctionTool | CustomTool | ActionTool):
            yield Placed(place, tool)

"""The tools of a request that the server runs, spelled as the API spells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer

from trt_responses.errors import InvalidRequest, invalid_value, unsupported_value
from trt_responses.features.tool_items.containers import NetworkPolicy, check_container_options
from trt_responses.wire.base import TEXT_OR_OBJECT, Kinds, ListOf, NonEmpty, Options, few_keys
from trt_responses.wire.choice import FolderChoice
from trt_responses.wire.tools import FolderTool

Search = Literal[
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
]
Domain = Annotated[str, Field(pattern=r"^\s*[\w-]+(\.[\w-]+)*\.?\s*$", max_length=253)]


class HostedTool(FolderTool):
    """A tool that the server runs, where the operator has switched it on."""

    @property
    def hosted(self) -> bool:
        return True


class AutoContainer(Options):
    """A container that the server finds or makes."""

    type: Literal["auto"]
    file_ids: ListOf[str] | None = None
    memory_limit: Literal["1g", "4g", "16g", "64g"] | None = None
    network_policy: NetworkPolicy | None = None


class CodeInterpreterTool(HostedTool):
    """A tool that runs the model's Python, where the operator has switched it on."""

    type: Literal["code_interpreter"]
    container: Annotated[NonEmpty | AutoContainer, TEXT_OR_OBJECT] | None = None
    outputs = "code_interpreter_call.outputs"

    def check(self, place: str) -> None:
        place = f"{place}.container"
        if self.container is None:
            raise InvalidRequest(
                f"Missing required parameter: '{place}'.",
                param=place,
                code="missing_required_parameter",
            )
        if not isinstance(self.container, str):
            check_container_options(self.container, f"{place}.")


class McpFilter(Options):
    """Some tools of an MCP server: by name, or by whether they only read."""

    tool_names: ListOf[str] | None = None
    read_only: bool | None = None


class McpApprovals(Options):
    """The calls that wait for the client, and those that do not."""

    always: McpFilter | None = None
    never: McpFilter | None = None


class McpTool(HostedTool):
    """The tools of an MCP server: one that the operator has configured under this label, or the
    client's own. A dump of it holds no secret: it is what is stored and given back."""

    type: Literal["mcp"]
    secret_fields = ("authorization", "headers", "server_url")  # a URL may hold a key
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
    allowed_callers: ListOf[Literal["direct", "programmatic"]] | None = None
    require_approval: (
        Annotated[Literal["always", "never"] | McpApprovals, TEXT_OR_OBJECT] | None
    ) = None

    @model_serializer(mode="wrap")
    def _without_secrets(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Drops unknown keys too: any of them could be a secret."""
        return {name: value for name, value in dump(self).items() if name in NO_SECRETS}

    @property
    def label(self) -> str:
        return f"mcp server {self.server_label}"

    def check(self, place: str) -> None:
        for name in ("connector_id", "tunnel_id"):
            if getattr(self, name) is not None:
                raise unsupported_value(
                    f"{place}.{name}",
                    "this server reaches MCP servers by their 'server_url', or by the "
                    "'server_label' of one that the operator has configured",
                )

    def refuse(self, place: str) -> None:
        if self.server_url is not None:
            what = "the operator of this server lets requests name no MCP server of their own"
            raise invalid_value(f"{place}.server_url", what)

    def options(self) -> dict[str, Any]:
        return super().options() | {name: getattr(self, name) for name in SECRETS}

    def echoed(self) -> dict[str, Any]:
        body = {"allowed_tools": None, "headers": None, "require_approval": "always"}
        return body | super().echoed()


SECRETS = ("authorization", "headers")
NO_SECRETS = McpTool.model_fields.keys() - SECRETS


class SearchFilters(Options):
    """The domains in which search may look, and those below them."""

    allowed_domains: ListOf[Domain] | None = None


class UserLocation(Options):
    """The place where the user is, roughly."""

    type: Literal["approximate"] | None = None
    country: Annotated[str, Field(pattern=r"^[A-Za-z]{2}$")] | None = None


class WebSearchTool(HostedTool):
    """A browser that the server runs, where the operator has switched it on."""

    type: Search
    filters: SearchFilters | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: UserLocation | None = None
    of_kind = "web_search"
    outputs = "web_search_call.action.sources"


class McpChoice(FolderChoice):
    """The tools of an MCP server, or one of them."""

    type: Literal["mcp"]
    server_label: NonEmpty
    name: str | None = None

    def part(self, run_here: Sequence[Any], place: str) -> tuple[str, str | None]:
        if not any(tool.options.get("server_label") == self.server_label for tool in run_here):
            what = f"no mcp tool of the request has the label '{self.server_label:.64}'"
            raise invalid_value(f"{place}.server_label", f"{what}, or this server does not run it")
        return self.server_label, self.name


TOOLS: dict[str, type[FolderTool]] = {
    "code_interpreter": CodeInterpreterTool,
    "mcp": McpTool,
    **dict.fromkeys(get_args(Search), WebSearchTool),
}
"""By each of their names."""


class HostedChoice(FolderChoice):
    """A tool of the server's that has no name but its kind."""

    type: Literal["code_interpreter", Search]


CHOICES: dict[str, type[FolderChoice]] = {
    "code_interpreter": HostedChoice,
    "mcp": McpChoice,
    **dict.fromkeys(get_args(Search), HostedChoice),
}

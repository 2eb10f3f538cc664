"""The tools of a request, spelled as the API spells them.

A kind of tool that has no model here, and none in a folder, runs nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

import orjson
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from trt_responses.wire.base import ByType, InstalledKinds, ListOf, Options
from trt_responses.wire.fields import honoured

SEPARATOR = "__"
"""Between a namespace and a name, in the one name by which the model knows both."""

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


class FolderTool(Options):
    """A tool of a kind that a folder brings: one of which the API says what a call is.

    Three rules bind a kind: it is added to `TOOLS` by each of its names; it says by itself whether
    the server runs it or the client; what `echoed` gives holds no secret."""

    type: str
    of_kind: ClassVar[str | None] = None
    """The kind, where `type` may be another name of it."""
    outputs: ClassVar[str | None] = None
    """The value of `include` that asks for the outputs of its calls."""
    secret_fields: ClassVar[tuple[str, ...]] = ()  # unknown fields too, where there are some
    guided: ClassVar[bool] = True
    """Whether the model is held to the schema of its calls."""

    @property
    def kind(self) -> str:
        return self.of_kind or self.type

    @property
    def hosted(self) -> bool:
        """Whether the server runs it, where the operator lets it: never the client."""
        return False

    @property
    def label(self) -> str:
        """What a request may offer once."""
        return self.kind

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """The description that the model reads, and the schema of its calls, where the client runs
        it."""
        raise NotImplementedError

    def check(self, place: str) -> None:
        """Raise an `InvalidRequest` for what is not built, where the server runs it."""

    def refuse(self, place: str) -> None:
        """Raise an `InvalidRequest` where a server that does not run it must not leave it out."""

    def options(self) -> dict[str, Any]:
        """The tool as the server runs it, with its secrets."""
        return self.model_dump(exclude_none=True)

    def echoed(self) -> dict[str, Any]:
        """The tool as the API gives it back."""
        return self.model_dump(exclude_none=True)


TOOLS: dict[str, type[FolderTool]] = {}
"""The kinds that are installed, by each of their names."""
if TYPE_CHECKING:
    Installed = FolderTool
else:
    Installed = Any  # FastAPI describes each class of a union, and this one is no kind


class OtherTool(Options):
    """A tool that somebody else would run: dropped, or named when it is refused."""

    type: str


Tool = Annotated[
    FunctionTool | CustomTool | NamespaceTool | Installed | OtherTool,
    InstalledKinds(TOOLS, *honoured("tools[].type="), ""),
]


class Placed(NamedTuple):
    """A tool that the client runs, and where in the request it stands."""

    place: str
    tool: FunctionTool | CustomTool | FolderTool
    namespace: NamespaceTool | None = None

    @property
    def name(self) -> str:
        """The name by which the model knows it."""
        if isinstance(self.tool, FolderTool):
            return self.tool.type
        if self.namespace is None:
            return self.tool.name
        return f"{self.namespace.name}{SEPARATOR}{self.tool.name}"


def runs_nowhere(tool: Tool, built_in: Collection[str]) -> bool:
    """Whether neither the client nor this server, which runs the kinds `built_in`, runs it."""
    if isinstance(tool, FolderTool) and tool.hosted:
        return tool.kind not in built_in
    return isinstance(tool, OtherTool)


def kind_of(name: str) -> str:
    """The kind of a tool, whichever of its names it has."""
    return name if (kind := TOOLS.get(name)) is None else kind.of_kind or name


def flat(tools: Iterable[Tool], within: str = "tools") -> Iterator[Placed]:
    """The tools that the client runs, those of namespaces among the others. `within` is the list in
    which they stand."""
    for number, tool in enumerate(tools):
        place = f"{within}[{number}]"
        if isinstance(tool, NamespaceTool):
            for step, inner in enumerate(tool.tools):
                yield Placed(f"{place}.tools[{step}]", inner, tool)
        elif not (isinstance(tool, OtherTool) or (isinstance(tool, FolderTool) and tool.hosted)):
            yield Placed(place, tool)

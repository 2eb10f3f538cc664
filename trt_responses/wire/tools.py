"""The tools of a request, spelled as the API spells them.

A kind of tool that has no model of its own here is one that nobody runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import orjson
from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from trt_responses.wire.base import ListOf, NonEmpty, Options, by_type, type_named

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

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
    format: (
        Annotated[
            Annotated[PlainInput, Tag("~text")] | Annotated[GrammarInput, Tag("~grammar")],
            by_type("text", "grammar"),
        ]
        | None
    ) = None


class NamespaceTool(Options):
    """Tools under one name: the model sees them flattened, the client gets them back apart."""

    type: Literal["namespace"]
    name: Name
    description: str | None = None
    tools: ListOf[
        Annotated[
            Annotated[FunctionTool, Tag("~function")] | Annotated[CustomTool, Tag("~custom")],
            by_type("function", "custom"),
        ]
    ]


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
    container: (
        Annotated[
            Annotated[NonEmpty, Tag("~id")] | Annotated[AutoContainer, Tag("~auto")],
            Discriminator(lambda value: "~id" if isinstance(value, str) else "~auto"),
        ]
        | None
    ) = None


class OtherTool(Options):
    """A tool that somebody else would run: dropped, or named when it is refused."""

    type: str


KINDS = ("function", "custom", "namespace", "code_interpreter")


def _tool_kind(value: Any) -> str:
    kind = type_named(value)
    return f"~{kind}" if kind in KINDS else "~other"


Tool = Annotated[
    Annotated[FunctionTool, Tag("~function")]
    | Annotated[CustomTool, Tag("~custom")]
    | Annotated[NamespaceTool, Tag("~namespace")]
    | Annotated[CodeInterpreterTool, Tag("~code_interpreter")]
    | Annotated[OtherTool, Tag("~other")],
    Discriminator(_tool_kind),
]


class Placed(NamedTuple):
    """A tool that the client runs, and where in the request it stands."""

    place: str
    tool: FunctionTool | CustomTool
    namespace: NamespaceTool | None = None

    @property
    def name(self) -> str:
        """The name by which the model knows it."""
        if self.namespace is None:
            return self.tool.name
        return f"{self.namespace.name}{SEPARATOR}{self.tool.name}"


def run_by_nobody(tool: Tool, built_in: Collection[str]) -> bool:
    """Whether neither the client runs it nor the server, which runs these kinds."""
    if isinstance(tool, CodeInterpreterTool):
        return tool.type not in built_in
    return isinstance(tool, OtherTool)


def flat(tools: Iterable[Tool]) -> Iterator[Placed]:
    """The tools that the client runs, those of namespaces among the others."""
    for place, tool in enumerate(tools):
        if isinstance(tool, NamespaceTool):
            for step, inner in enumerate(tool.tools):
                yield Placed(f"tools[{place}].tools[{step}]", inner, tool)
        elif isinstance(tool, FunctionTool | CustomTool):
            yield Placed(f"tools[{place}]", tool)

"""What a request asks for: one frozen value, made when the request is accepted.

Everything behind reads this value and never the request, whichever API spelled it: each API has a
reader of its own that makes one (`responses.py` is the Responses API's). Knows items, and the seam
of engines for what is sampled; knows no API's fields but by the places that its faults name.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Literal

from trt_responses.frozen import dataclass
from trt_responses.language.messages import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trt_responses.engine import GenerateOptions
    from trt_responses.log.item_events import Callee
    from trt_responses.wire.items import ItemPlace, SentItem
    from trt_responses.wire.response import Response

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """A language that a custom tool's text is to be of."""

    syntax: Literal["lark", "regex"]
    definition: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call: the client runs it, or an MCP server does."""

    name: str
    """The model's name for it; a namespace is a part of the name."""
    place: str
    """Where it stands in the request, for faults."""
    callee: Callee
    """The client's name for it."""
    description: str = ""
    parameters: Mapping[str, object] | None = None
    """The schema of a function's arguments; a custom tool has none."""
    strict: bool = False
    grammar: Grammar | None = None
    deferred: bool = False
    """The model reads of it when a search has found it."""
    server: str | None = None
    """The label of the MCP server whose tool it is: the server runs it, and not the client."""

    @property
    def recipient(self) -> str:
        return FUNCTIONS + self.name

    @property
    def promise(self) -> str | None:
        """The request field that makes this tool's arguments strict."""
        if self.callee.action is not None and self.strict:
            return "type"
        if self.grammar is not None:
            return "format"
        return "strict" if self.strict else None


@dataclass(frozen=True, slots=True)
class BuiltInTool:
    """A tool of the request that the server runs."""

    kind: str
    """The API's name for it, such as `code_interpreter`."""
    recipients: Sequence[str]
    """The model's names for it, as calls that are forced have them."""
    place: str
    options: Mapping[str, Any] = field(repr=False)
    """The tool as the request has it; secrets may stand in it."""
    shows_outputs: bool


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """The tools that may be called, and whether one must be."""

    names: Collection[str]
    may_answer: bool = True
    narrows: bool = False
    """Less is allowed than the tools themselves allow."""
    place: str = "tool_choice"
    built_in: Collection[str] = frozenset()
    """Kinds of the server's tools that may be called."""
    servers: Mapping[str, Collection[str] | None] | None = None
    """Of MCP servers by their labels, the tools that may be called, None for all of one; None: all
    of all, where `built_in` has their kind."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The JSON that an answer must be, or the text."""

    place: str
    name: str
    description: str | None
    schema: Mapping[str, object] | None
    """None for any object."""
    strict: bool = False
    """All of the schema is promised; else as much of it as can be."""
    grammar: str | None = None
    """In Lark, and in place of a schema: the text need not be JSON."""


@dataclass(frozen=True, slots=True)
class ThoughtBudget:
    """The most tokens of a thought; of 0 there is no thought. `place` is the field that says so."""

    tokens: int
    place: str


@dataclass(frozen=True)
class Accepted:
    """All that a request asks for."""

    input: str | Sequence[SentItem]
    previous_response_id: str | None
    instructions: str | None
    tools: Sequence[Tool]
    choice: ToolChoice
    answer: AnswerFormat | None
    effort: Effort | None
    thought: ThoughtBudget | None
    sampling: GenerateOptions
    """The options of an engine's request, but for those of one run and of one segment."""
    max_output_tokens: int | None
    parallel_calls: bool
    """More than one call in a turn is welcome."""
    truncates: bool
    """The oldest turns may be left out, when there is no room for them."""
    seals: bool
    """The client carries the reasoning, encrypted."""
    store: bool
    echo: Response
    """The first snapshot, but for its id, its time and its model."""
    ignored: Mapping[str, Any]
    """Request fields that the core ignores, by their paths: a feature may honour one."""
    unsupported_tools: Sequence[str]
    """Kinds of tools that were left out: neither the client nor the server runs them."""
    places: Sequence[ItemPlace] | None = None
    """Where in the request each item of the input stands; None: `input[…]`."""
    conversation: str | None = None
    """The id of the conversation that the response becomes a part of."""
    compacts: bool = False
    """A compaction is wanted, and no answer."""
    compacts_beyond: int | None = None
    """The tokens of a prompt beyond which its conversation is compacted before it is answered; 0:
    as many as the server finds right; None: it is not."""
    generates: bool = True
    """Something is to be written; else the prompt is read, for a request that goes on from it."""
    included: Collection[str] = ()
    """What the last snapshot is to say besides, by the values of `include`."""
    built_in: Sequence[BuiltInTool] = ()
    max_tool_calls: int | None = None
    """Calls of the server's tools."""
    summarised: bool = False
    """A summary of thoughts is wanted, which stands for them where the server gives any."""
    verifies: bool = False
    """Reasoning that a client sends back must be what was sealed."""
    own_temperature: bool = True
    """The request sets it; else the engine may have a default of its own."""
    stop: Sequence[str] = ()
    """Texts of which the first ends the answer, and is not sent."""
    prompt_ids: Sequence[int] | None = None
    """The whole prompt, of a client that renders it itself; `input` is empty then."""
    begun: Sequence[int] = ()
    """Ids with which the client has the answer begin; they follow the prompt."""
    compared: str | None = None
    """The id of a response whose prompt is compared with this one's."""
    scored: bool = False
    """The reply has the likelihood of each token, as `sampling.logprobs` asks."""


DEFAULTS = {one.name: one.default for one in fields(Accepted)} | {
    "seals": False,
    "truncates": False,
    "ignored": {},
    "tools": [],
}
"""The fields as a request has them that does not ask for anything by them."""
FEATURES = {
    "conversation": ("conversation", "conversations"),
    "compacts": ("input", "compactions"),
    "compacts_beyond": ("context_management", "compactions"),
    "generates": ("generate", "prompts that are only read"),
    "included": ("include", "metrics and messages of a response"),
    "compared": ("prompt_cache_options", "comparisons of prompts"),
    "scored": ("include", "log probabilities"),
    "seals": ("include", "encrypted thoughts"),
    "built_in": ("tools", "tools that the server runs"),
    "stop": ("stop", "stop sequences"),
    "truncates": ("truncation", "truncations"),
}
"""The fields that no one serves but a feature, each with the request's field and what it asks
for."""

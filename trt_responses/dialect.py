"""The seam of dialects: how a model is spoken to, and how what it writes is understood.

A dialect has four duties. It **renders** messages to ids, it **reads** ids to fragments, it
**steers** a turn by what it forces, bans and guides, and it says which ids **end** what. Knows
values and blocks; knows no item, no HTTP, no engine and no concrete dialect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from trt_responses.language.reader import AS_USUAL

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from trt_responses.language.messages import Developer, FunctionTool, Message, System
    from trt_responses.language.reader import Reader, ReaderOptions, Span
    from trt_responses.language.steering import Guides, SteeringPlan, Turn
    from trt_responses.schema.compile import Form
    from trt_responses.store import Block, Kind

    Place = tuple[Kind, int, int]
    """A part of a block's ids: from and to which byte."""
    Entries = Callable[[Sequence[Block]], list["Entry"]]
    """What blocks say, read from their items: for who writes a conversation anew."""


class Entry(NamedTuple):
    """What one block says, as messages."""

    kind: Kind
    messages: Sequence[Message]
    """The messages: two for a call that brings its own result, none where there is nothing to
    show."""
    call_id: str | None
    """The id of a call, also on its result."""
    ids: bytes
    """The ids as the block has them."""


NO_TOOLS = "this model's template shows it no tools"


class Takes(NamedTuple):
    """What a dialect supports; the rest is refused by name."""

    tools: bool = True
    thoughts: bool = True
    raw_calls: bool = True
    """Whether a call's text can be written as it is, and not as JSON, as a Lark grammar asks."""
    prompt_ids: bool = True
    """Whether a prompt may be given as ids."""
    namespaces: bool = True
    """Whether tools that run here are described in words, as namespaces; else they are shown as
    functions among the others."""
    no_tools: str = NO_TOOLS
    """Why there are no tools."""
    calls: int = 1
    """Maximum tool calls in a turn, unless a setting says otherwise."""


EVERYTHING = Takes()


class Answered(NamedTuple):
    """A tool's answer within a run, as ids."""

    ids: array[int]
    """What stands behind the call, up to where the model goes on."""
    stored: Sequence[int] = ()
    """The tool result alone, in the form that the call's block stores; empty if `ids` are that."""
    prompt: array[int] | None = None
    """The whole prompt, where what follows cannot stand behind the ids that are there: the model
    goes on from it, and `ids` only counts."""


class Lexicon(Protocol):
    """The ids of a model, as bytes and as people read them."""

    @property
    def token_bytes(self) -> tuple[bytes, ...]:
        """The bytes of each ordinary id; empty, or none, of a control id."""
        ...

    def is_control(self, token_id: int) -> bool:
        """Whether an id is no text: a mark, or one that the vocabulary does not have."""
        ...

    def control_name(self, token_id: int) -> str:
        """The spelling of a control id, such as `<|call|>`."""
        ...

    def text(self, token_ids: list[int]) -> str:
        """Ids as people read them: bad UTF-8 replaced, control ids spelled out."""
        ...


class Continuation(Protocol):
    """Extends an existing prompt, within one response: tools that the server runs and compactions
    need it."""

    async def answer(
        self, message: Message, reader: Reader, at_most: int | None = None
    ) -> Answered:
        """A tool's answer within a run, behind the call that the reader has read last. Raises
        `InvalidRequest` when it is longer than `at_most`; then a shorter one may be tried."""
        ...

    def reopened(self, kept: Sequence[int]) -> array[int] | None:
        """The ids of a turn that has ended, as many, behind which the model can write another
        message; None where it cannot."""
        ...

    async def behind(self, prompt: array[int], message: Message) -> array[int]:
        """A prompt with one message more."""
        ...

    async def at_call(self, prompt: array[int]) -> array[int]:
        """A prompt whose last message is a call, up to where the answer of that begins."""
        ...


def uncompacted(kinds: Sequence[Kind]) -> list[bool]:
    """Which messages the newest compaction does not replace: those behind it, and user and
    developer messages before it, unless it holds those too."""
    short = ("summary", "context")
    at = max((place for place, kind in enumerate(kinds) if kind in short), default=0)
    beside = ("user", "developer") if "summary" in kinds[at : at + 1] else ()
    return [place >= at or kind in beside for place, kind in enumerate(kinds)]


class Renderer(Protocol):
    """Writes messages as ids. No text of a message, a name or a schema ever becomes a control
    id."""

    def continuation(
        self,
        prompt: array[int],
        system: System,
        developer: Developer,
        blocks: Sequence[Block],
        entries: Entries,
    ) -> Continuation:
        """What goes on behind the prompt that was made of the others, within one response."""
        ...

    async def pause(self) -> None:
        """Let other tasks run, as it does itself between two pieces of work."""
        ...

    async def message(self, message: Message, at_most: int | None = None) -> array[int]:
        """A message as its block holds it: its ids, and how many it takes in a prompt. Raises
        `InvalidRequest` when it is longer than `at_most`."""
        ...

    async def preface(self, system: System, developer: Developer, at_most: int | None) -> int:
        """The number of tokens that stand around a conversation."""
        ...

    async def prompt(
        self,
        system: System,
        developer: Developer,
        blocks: Sequence[Block],
        entries: Entries,
        at_most: int | None,
    ) -> array[int]:
        """The ids of a whole prompt, up to where the model goes on."""
        ...

    def keeps(self, kinds: Sequence[Kind]) -> list[bool]:
        """The messages of a conversation that are handed in: some are known to stand in no prompt
        any more."""
        ...

    def own_ids(self, kept: Sequence[int], span: Span) -> array[int]:
        """A message's ids as they stand in later prompts, and those of its answer, if it has
        one."""
        ...

    def answer_in(self, block: bytes) -> list[int] | None:
        """The ids of a tool's answer as text, in a block that holds a call and its answer; None
        where it holds none."""
        ...

    def joined(self, parts: Sequence[tuple[Kind, bytes]]) -> tuple[bytes, list[Place]]:
        """What several blocks hold, as one block holds it, and where in it each of them stands."""
        ...


class Dialect(Protocol):
    """One dialect over one vocabulary."""

    @property
    def name(self) -> str: ...

    @property
    def vocabulary(self) -> str:
        """The name of the vocabulary: blocks that were made with another name hold ids that mean
        other things here. Empty for gpt-oss, whose histories are older than the name."""
        ...

    @property
    def lexicon(self) -> Lexicon: ...

    @property
    def renderer(self) -> Renderer: ...

    @property
    def takes(self) -> Takes: ...

    def reader(self, options: ReaderOptions = AS_USUAL) -> Reader:
        """A reader of one generation."""
        ...

    def plan(
        self, turn: Turn, guides: Guides, tokens: int, *, written: int = 0, after_tool: bool = False
    ) -> SteeringPlan:
        """The plan of a turn, for so many tokens more behind those that were written; `after_tool`:
        behind a tool's answer."""
        ...

    def arguments(self, of_json: Form, tool: FunctionTool) -> Form:
        """The form of a tool's arguments as they are written here, from that of the same as JSON.
        Raises `Unguided`."""
        ...

    def messages(self, ids: Sequence[int]) -> list[Sequence[int]]:
        """The ids of a prompt or of an output, message by message."""
        ...

    async def close(self) -> None:
        """Give back what it holds; it may be used again."""
        ...

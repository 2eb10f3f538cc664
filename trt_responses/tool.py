"""The seam of tools that the server runs itself: a call's text in, one bounded answer out.

Knows no Harmony, no item of the API and no concrete tool. Three rules bind every tool:

1. Nothing begins before the first `call` of a session; what `open` does is to find its place, and
   to ask a server that others run what it offers.
2. `call` ends within the tool's own deadline, and gives a bounded text, for any call of the model.
   What the model can act on is an answer that `failed`, never an exception.
3. A `call` that is cancelled has ended all that it began by the time it raises. A call is never
   repeated.

What a session may offer besides, lists and sources, is in `tools/session.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, runtime_checkable

NOTHING: Mapping[str, Any] = {}


class ToolCall(NamedTuple):
    """What the model wrote to the tool."""

    text: str
    content_type: str | None = None
    """As the header names it: `json`, `code`, or nothing."""
    recipient: str = ""
    """The recipient: one of the session's recipients."""
    waits: Callable[[], AbstractContextManager[object]] = nullcontext
    """Surrounds a wait for calls of others, which does not count for the deadline."""


class ToolAnswer(NamedTuple):
    """The result for the model and the client."""

    text: str
    failed: bool = False
    """The tool did not do its work: a deadline, a crash, arguments that cannot be read. Code that
    ran and raised has not failed."""
    details: Mapping[str, Any] = NOTHING
    """What the call's item says besides the text, by the item's own keys, such as its `error`."""


class Function(NamedTuple):
    """A name that the model is shown among the functions."""

    description: str
    parameters: Mapping[str, Any]
    text: str = ""
    """The one argument that is the call's text; empty: the arguments as JSON are."""


class Recipient(NamedTuple):
    """How the client sees calls to one name."""

    kind: str
    """The kind of call, such as `code_interpreter`."""
    facts: Mapping[str, str] = NOTHING
    """What an item of it says before anything runs, by the item's own keys."""
    describe: Callable[[str], Mapping[str, Any]] | None = None
    """The same of one call, from the text that the model wrote."""
    function: Function | None = None
    """None for a name that the tool's own description tells of."""


class Opening(NamedTuple):
    """What a response asks of a tool, before its first call."""

    owner: str
    place: str = "tools[0]"
    """Where in the request the tool stands, for faults."""
    options: Mapping[str, Any] = NOTHING
    """The tool as the request has it."""
    items: Sequence[Mapping[str, Any]] = ()
    """What this tool has done in the conversation so far, as items, the latest last."""
    answers: Callable[[], Sequence[str]] = tuple
    """What the model wrote to this tool in the conversation, and what it read then: the latest."""
    messages: Callable[[], Sequence[str]] = tuple
    """What the user has written in the conversation."""
    cited: Callable[[], Sequence[str]] = tuple
    """The URLs that the model's answers in the conversation cite."""


class Session(Protocol):
    """One response's use of a tool. One call at a time."""

    @property
    def recipients(self) -> Mapping[str, Recipient]:
        """The names by which the model calls it; known before the first call."""
        ...

    async def call(self, call: ToolCall) -> ToolAnswer: ...

    async def close(self) -> None:
        """The response has ended; a container that its owner keeps stays. Idempotent."""
        ...


@runtime_checkable
class IgnoresOptions(Protocol):
    """A tool that does nothing with some of what a request's tool may say."""

    def ignored(self, options: Mapping[str, Any]) -> Sequence[str]:
        """Those of these options, such as `user_location.city`."""
        ...


class Tool(Protocol):
    """A tool that the operator has configured."""

    @property
    def kind(self) -> str:
        """The API's name for it, such as `code_interpreter`."""
        ...

    @property
    def name(self) -> str:
        """The model's name for it: its namespace in the prompt, where it has one."""
        ...

    @property
    def description(self) -> str | None:
        """What the prompt says of its namespace, which is true of this machine; None for a tool
        that has none."""
        ...

    @property
    def recipients(self) -> Sequence[str]:
        """The names by which a call of it can be forced, those that any session has."""
        ...

    @property
    def functions(self) -> Mapping[str, Function]:
        """The same as functions, for models that are shown nothing else."""
        ...

    @property
    def deadline_s(self) -> float:
        """When a call is broken off by the loop, should the tool not have done so itself."""
        ...

    async def start(self) -> None:
        """Be able to work, or raise a `StartupError` with one sentence."""
        ...

    async def stop(self) -> None:
        """End everything that it began."""
        ...

    async def open(self, opening: Opening) -> Session:
        """A session for one response. Raises an `InvalidRequest` for what the owner may not
        have."""
        ...

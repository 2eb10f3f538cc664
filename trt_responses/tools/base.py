"""The seam of tools that the server runs itself: a call's text in, one bounded answer out.

Knows no Harmony, no item of the API and no concrete tool. Three rules bind every tool:

1. Nothing begins before the first `call` of a session; what `open` does is to find its place.
2. `call` ends within the tool's own deadline, and gives a bounded text, whatever the model asked.
   What the model can act on is an answer that `failed`, never an exception.
3. A `call` that is cancelled has ended all that it began by the time it raises. A call is never
   repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class ToolCall(NamedTuple):
    """What the model wrote to the tool."""

    text: str
    content_type: str | None = None
    """As the header names it: `json`, `code`, or nothing."""


class ToolAnswer(NamedTuple):
    """What the model and the client are told."""

    text: str
    failed: bool = False
    """The tool did not do its work: a deadline, a crash, arguments that cannot be read. Code that
    ran and raised has not failed."""


class ContainerFacts(NamedTuple):
    """A container, as its owner is told of it."""

    id: str
    name: str
    created_at: int
    last_active_at: int
    idle_s: float
    """It ends when nobody has used it for so long."""


class ContainerStore(Protocol):
    """The containers of a tool, for their owners to see and to end. A container that an owner does
    not have is an `InvalidRequest` of status 404, whoever else has it."""

    async def create(self, owner: str, name: str, idle_s: float | None) -> ContainerFacts: ...

    def facts_of(self, owner: str) -> list[ContainerFacts]:
        """The oldest first."""
        ...

    def facts(self, owner: str, container_id: str) -> ContainerFacts: ...

    async def delete(self, owner: str, container_id: str) -> None: ...


class Session(Protocol):
    """One response's use of a tool. One call at a time."""

    @property
    def container_id(self) -> str:
        """Where its state is, as the client is told of it; known before the first call."""
        ...

    async def call(self, call: ToolCall) -> ToolAnswer: ...

    async def close(self) -> None:
        """The response has ended; a container that its owner keeps stays. Idempotent."""
        ...


class Tool(Protocol):
    """A tool that the operator has configured."""

    @property
    def kind(self) -> str:
        """The API's name for it, such as `code_interpreter`."""
        ...

    @property
    def name(self) -> str:
        """The model's name for it: the recipient of its calls, and its namespace in the prompt."""
        ...

    @property
    def description(self) -> str:
        """What the prompt says of it, which is true of this machine."""
        ...

    @property
    def deadline_s(self) -> float:
        """When a call is broken off by the loop, should the tool not have done so itself."""
        ...

    @property
    def containers(self) -> ContainerStore | None:
        """Where its calls run, for a tool that keeps such places."""
        ...

    async def start(self) -> None:
        """Be able to work, or raise a `StartupError` with one sentence."""
        ...

    async def stop(self) -> None:
        """End everything that it began."""
        ...

    async def open(self, owner: str, container_id: str | None, earlier: Sequence[str]) -> Session:
        """A session in this container, or in the living one that comes last among those that the
        conversation has used, or in a new one. Raises an `InvalidRequest` for a container that the
        owner does not have."""
        ...

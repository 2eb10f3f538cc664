"""The store seam: finished responses by id, and what their conversations are made of.

Knows bytes and owners; knows no Harmony, no HTTP and no concrete store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["user", "developer", "reasoning", "preamble", "final", "call", "result"]
"""What a message is in a conversation: enough to say which reasoning is still rendered."""


@dataclass(frozen=True, slots=True)
class Block:
    """An immutable message: the API's item as JSON, and the ids it stands for in a prompt."""

    kind: Kind
    item: bytes
    ids: bytes
    """Unsigned 32-bit ids, in this machine's byte order."""
    call_id: str | None = None
    """Of a call: what its result will name."""
    callee: str | None = None
    """Of a call: the recipient that the model wrote, which is the author of the result."""

    @property
    def size_bytes(self) -> int:
        return len(self.item) + len(self.ids)


@dataclass(frozen=True, slots=True)
class Record:
    """A finished response: its last snapshot, and the conversation up to its end."""

    id: str
    owner: str
    body: bytes
    blocks: tuple[Block, ...]
    """Prior conversation, then this request's input, then the response's own output."""
    prior_count: int
    input_count: int
    continuable: bool
    date: str
    """The date in the system message, fixed for a whole chain so that prefixes stay equal."""


class Store(Protocol):
    async def start(self) -> None: ...

    async def put(self, record: Record) -> None:
        """Keep it; when this returns, a `get` by anyone finds it."""
        ...

    async def get(self, response_id: str, owner: str) -> Record | None: ...

    async def delete(self, response_id: str, owner: str) -> bool:
        """Whether there was one."""
        ...

    async def stop(self) -> None: ...

"""The store seam: finished responses, and the blocks they are made of.

Folders keep more, in the same stores: `stores/whole.py`. Knows bytes and owners; knows no Harmony,
no HTTP and no concrete store. No method tells another owner's ids from unknown ones.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal, Protocol

from trt_responses.frozen import dataclass

Kind = Literal[
    "user",
    "developer",
    "reasoning",
    "preamble",
    "final",
    "call",
    "result",
    "request",
    "summary",
    "context",
]
"""What a message is in a conversation: enough to say which reasoning is still rendered. `summary`
replaces earlier items except user and developer messages, and `context` all earlier items.
`request` is used inside stores only and is not a message: the request's fields at the end of a
body."""


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
    digest: bytes = field(default=b"", compare=False, repr=False)
    """Of the content, once a store has it: what came from a store is not hashed again."""


@dataclass(frozen=True, slots=True)
class Record:
    """A finished response: its last snapshot, and the conversation up to its end. Or a conversation
    of its own: the object that the API gives, and its items."""

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
    created_at: int = 0
    """Seconds since the epoch; its age counts from here."""
    version: int = 0
    """Of a conversation, which changes: one more with each change. A response has none."""
    vocabulary: str = ""
    """Of its blocks' ids: a dialect's `vocabulary`. Empty: gpt-oss's."""

    @property
    def own_from(self) -> int:
        """The place at which the blocks of the response's own output begin."""
        return self.prior_count + self.input_count


@dataclass(frozen=True, slots=True)
class Job:
    """A background response that has not ended, as anybody may read it on any replica."""

    id: str
    owner: str
    body: bytes
    """Its snapshot as of the last renewal: `queued` or `in_progress`."""
    created_at: int
    cancel_requested: bool = False
    lost: bool = False
    """Its lease has run out, and no server may resume it any more. This never changes back."""
    source: bytes = b""
    """What another server makes the run from; empty: none can."""
    model: str = ""
    """What it is made by: nothing else may go on with its ids."""
    term: int = 1
    """Which of its servers has it: one more with each server."""
    ids: bytes = b""
    """Of a job under a new server: the ids in its frames."""
    frames: int = 0
    """Likewise: how many frames there are."""


@dataclass(frozen=True, slots=True)
class Expired:
    """A record that was there, and was dropped for its age or for want of room."""

    id: str


Found = Record | Job | Expired | None


class Records(Protocol):
    """The part of a store in which finished responses are looked up."""

    async def get(self, response_id: str, owner: str) -> Found: ...


class Store(Records, Protocol):
    """Every method may raise an `ApiError`: what is away or full says so, and guesses nothing."""

    async def start(self) -> None:
        """Open it, or a `StartupError` that says what is wrong."""
        ...

    async def stop(self) -> None: ...

    async def check(self) -> None:
        """Raise when a record could not be kept now; called before anything is generated for it."""
        ...

    async def put(self, record: Record) -> None:
        """Keep it; when this returns, a `get` by anyone finds it."""
        ...

    async def delete(self, response_id: str, owner: str) -> bool:
        """Whether there was one: a record, or a job, whose server then learns that it is gone."""
        ...

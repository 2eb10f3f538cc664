"""The store seam: finished responses, running background ones, and the blocks they are made of.

Knows bytes, owners and leases; knows no Harmony, no HTTP and no concrete store. No method tells
another owner's ids from unknown ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Literal, Protocol, TypeVar

import orjson

from trt_responses.frozen import dataclass

Spell = Callable[[bytes], bytes]
"""What a block's ids say, spelled as in its item; the same for ever, and nothing where they say
nothing. A store that is given it keeps that text as ids alone."""

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

Standing = Literal["held", "cancel", "gone"]
"""What a server learns of its job: go on; a client wants it cancelled; it is no longer yours."""


def lasting_json(value: object) -> bytes:
    """JSON for what is kept. What orjson returns stays in a buffer of four to sixteen times its
    size, of 4 KiB and more, for as long as it lives; a copy has its own size."""
    return bytes(memoryview(orjson.dumps(value)))


def says_nothing(ids: bytes) -> bytes:
    """A speller of nothing, for a store that keeps each text as it stands."""
    return b""


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


class _Unwritten(Block):
    __slots__ = ("write",)
    write: Callable[[], bytes]

    def __getattr__(self, name: str) -> bytes:
        """Called for the item, until it is written."""
        if name != "item":
            raise AttributeError(name)
        object.__setattr__(self, name, self.write())
        return self.item


def unwritten(kind: Kind, write: Callable[[], bytes], ids: bytes) -> Block:
    """A block whose item is written when it is read first: usually never, where nothing is
    stored."""
    block = _Unwritten(kind, b"", ids)
    object.__delattr__(block, "item")
    block.write = write
    return block


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
class Lock:
    """What keeps a conversation for one writer, or a used approval for the response that it was
    for. A conversation's is renewed by its server; that of a server that died runs out."""

    key: str
    """The id of the conversation or the approval."""
    owner: str
    writer: str
    """The id of the response that is made in it."""
    term: int = 1
    """Of the response's job, if it is one: who takes the job takes its lock."""


@dataclass(frozen=True, slots=True)
class Expired:
    """A record that was there, and was dropped for its age or for want of room."""

    id: str


@dataclass(frozen=True, slots=True)
class Frames:
    """Whole SSE frames of a background stream, in order and without a gap."""

    first: int
    """The sequence number of the first of them."""
    count: int
    data: bytes
    ended: bool = False
    """Nothing follows them."""
    ids: bytes = b""
    """The ids that they tell, unsigned 32-bit: what a job's next server goes on from."""


Found = Record | Job | Expired | None
F = TypeVar("F", bound=Found)


class Usage:
    """What a store has found, dropped and holds, as this process knows; the store counts."""

    def __init__(self, *, shared: bool = False) -> None:
        self.shared = shared
        """Whether what was dropped is counted by a server that several processes use."""
        self.reads = {"found": 0, "expired": 0, "absent": 0}
        """Records and jobs that were looked up, by the result."""
        self.blocks = {"memory": 0, "store": 0}
        """Blocks of those that were found, by where they were read from."""
        self.dropped: dict[str, int] = {"age": 0, "room": 0}
        """Records that left because they were too old, or the store too full."""
        self.size_bytes: int | None = None
        """At rest, as of the last change; None while unknown."""
        self.records: int | None = None

    def looked(self, found: F) -> F:
        """Counts one look-up, and returns what it found."""
        if found is None:
            self.reads["absent"] += 1
        elif isinstance(found, Expired):
            self.reads["expired"] += 1
        else:
            self.reads["found"] += 1
        return found

    def holds(self, size_bytes: int, records: int | None = None) -> None:
        self.size_bytes, self.records = size_bytes, records


class Records(Protocol):
    """The part of a store in which finished responses are looked up."""

    async def get(self, response_id: str, owner: str) -> Found: ...


class Store(Records, Protocol):
    """Every method may raise an `ApiError`: what is away or full says so, and guesses nothing."""

    @property
    def usage(self) -> Usage:
        """What it has found, dropped and holds."""
        ...

    @property
    def lease_s(self) -> float:
        """How long a job lives without being renewed: renew it three times as often."""
        ...

    @property
    def takeover_s(self) -> float:
        """How long after its lease a job may be taken over by another server; 0: not at all."""
        ...

    async def start(self) -> None:
        """Open it, or a `StartupError` that says what is wrong."""
        ...

    async def stop(self) -> None: ...

    async def check(self) -> None:
        """Raise when a record could not be kept now; called before anything is generated for it."""
        ...

    # --- records ------------------------------------------------------------------------------

    async def put(self, record: Record) -> None:
        """Keep it; when this returns, a `get` by anyone finds it."""
        ...

    async def delete(self, response_id: str, owner: str) -> bool:
        """Whether there was one: a record, or a job, whose server then learns that it is gone."""
        ...

    async def ids_of(self, owner: str) -> list[str]:
        """The ids of all that is kept of an owner: records and jobs."""
        ...

    async def owners(self) -> list[str]:
        """The owners of all records."""
        ...

    async def replace(self, record: Record) -> bool:
        """Keep the same record in another form: its age goes on. False, and nothing is kept, when
        none of this owner and version is stored."""
        ...

    # --- conversations: records that change ---------------------------------------------------

    async def change(
        self, conversation: Record, response: Record | None = None, *, lock: Lock | None = None
    ) -> bool:
        """At once: it stands in place of the version before, the response is stored too, and the
        lock is gone.

        False, and nothing is kept, when another version is stored than the one before, or none; of
        version 1, when there is one; or when it is locked otherwise. It is found and deleted as a
        response is.
        """
        ...

    async def lock(self, lock: Lock, lease_s: float) -> bool:
        """Keep all others from changing a conversation, for so long from now. False when another
        writer has it locked, or a later term of this one."""
        ...

    async def renew_lock(self, lock: Lock, lease_s: float) -> bool:
        """Whether it is still locked so, and is for so long from now."""
        ...

    async def unlock(self, lock: Lock) -> None:
        """Let others change the conversation, if it is locked so."""
        ...

    # --- jobs: background responses, from before `queued` is answered to their end ------------

    async def put_job(self, job: Job) -> None:
        """Keep it under a fresh lease; when this returns, `queued` may be answered."""
        ...

    async def renew_job(self, job_id: str, body: bytes | None = None, *, term: int = 1) -> Standing:
        """The server's heartbeat, with a newer snapshot if there is one. After `gone`, stop."""
        ...

    async def take_job(self, model: str) -> Job | None:
        """A job of this model whose server has let its lease run out, under a fresh lease and the
        next term: the server before can write nothing any more. None when there is none, or
        when too many servers died with it."""
        ...

    async def leave_job(self, job_id: str, *, term: int, to_others: bool) -> None:
        """Leave a job, since its server goes: others may take it at once, or it is lost."""
        ...

    async def cancel_job(self, job_id: str, owner: str) -> bool:
        """Ask its server to cancel it; False when there is no such job, or it is lost."""
        ...

    async def finish_job(
        self,
        record: Record,
        frames: Frames | None = None,
        conversation: Record | None = None,
        *,
        term: int = 1,
    ) -> bool:
        """At once: the record is stored, the job is gone, the last frames are kept, and the
        conversation is changed as by `change`, with the lock of the job and its term.

        False, and nothing is kept, when the job was deleted, taken over or lost, since a reader may
        have seen that, or when the conversation cannot be changed.
        """
        ...

    # --- frames: a background stream, to be replayed ------------------------------------------

    async def append_frames(self, response_id: str, frames: Frames, *, term: int = 1) -> bool:
        """Keep more of a job's frames: the first is number 0, and each follows the last. Whether
        the job is still of this term and not lost, and they may be sent.

        A call that was not answered may have kept them: repeat it with the same frames. Frames that
        do not follow what is kept are left out.

        They have a bound of their own: the oldest responses' frames leave, all of them at once.
        """
        ...

    async def frames_after(self, response_id: str, owner: str, after: int) -> Frames | None:
        """The frames with greater numbers so far (perhaps none); None when none are kept."""
        ...

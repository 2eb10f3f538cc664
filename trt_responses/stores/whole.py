"""All that a store keeps: responses that run, conversations that change, streams, and who has what.

The core needs the part in `store.py`; the rest is for background responses, batches, conversations,
approvals, owners and metrics. Knows bytes, owners and leases; knows no Harmony, no HTTP and no
concrete store. No method tells another owner's ids from unknown ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeVar, cast

from trt_responses.errors import UsageError
from trt_responses.frozen import dataclass
from trt_responses.store import Expired, Found, Job, Record, Store

Spell = Callable[[bytes], bytes]
"""What a block's ids say, spelled as in its item; the same for ever, and nothing where they say
nothing. A store that is given it keeps that text as ids alone."""

Standing = Literal["held", "cancel", "gone"]
"""What a server learns of its job: go on; a client wants it cancelled; it is no longer yours."""


F = TypeVar("F", bound=Found)


def says_nothing(ids: bytes) -> bytes:
    """A speller of nothing, for a store that keeps each text as it stands."""
    return b""


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


class WholeStore(Store, Protocol):
    """A store with all that folders call. Every method may raise an `ApiError`, as there."""

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


def whole_store(store: Store) -> WholeStore:
    """The same store. Raises a `UsageError` where it lacks what a folder calls."""
    names = (name for name in dir(WholeStore) if not name.startswith("_"))
    if lacks := [name for name in names if not hasattr(store, name)]:
        raise UsageError(f"The store {type(store).__name__} lacks {', '.join(lacks)}.")
    return cast("WholeStore", store)

"""Responses that are made in a conversation: one at a time, and it grows with each."""

from __future__ import annotations

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import ApiError, NotFound
from trt_responses.feature import Step
from trt_responses.features.conversations.conversations import conversation_of, grown
from trt_responses.features.conversations.locks import HeldLock, Locks, locked
from trt_responses.prompt.history import Prior
from trt_responses.run.commit import Write
from trt_responses.run.draft import Draft
from trt_responses.store import Record, Store
from trt_responses.stores.whole import Lock
from trt_responses.wire.response import Response


class InConversations:
    """Makes responses in conversations."""

    reads = ("conversation",)

    def __init__(self, locks: Locks) -> None:
        self._locks = locks

    def accept(self, accepted: Accepted) -> Step | None:
        if accepted.conversation is None:
            return None
        return ConversationStep(accepted.conversation, self._locks)


class ConversationStep(Step):
    """Makes one response in a conversation."""

    order = 10

    def __init__(self, conversation_id: str, locks: Locks) -> None:
        self._id = conversation_id
        self._locks = locks
        self._held: HeldLock | None = None
        self._record: Record | None = None

    async def acquire(self, draft: Draft) -> None:
        lock = Lock(self._id, draft.owner, draft.id, draft.term)
        held = self._held = await self._locks.take(lock)

        async def free() -> None:
            if draft.left:
                held.leave()  # the next server to go on with the run takes it
            else:
                await held.free()

        draft.after_storing(free)

    async def offer(self, draft: Draft) -> None:
        record = self._record = await conversation_of(self._id, draft.records, draft.owner)
        draft.prior = Prior(record.blocks, record.date or None, record)

    async def outlive(self, lease_s: float) -> None:
        if self._held is not None:
            await self._held.extend(lease_s)

    async def commit(self, write: Write, draft: Draft, last: Response) -> None:
        if not write.record.continuable or self._record is None:
            return
        made, now_s = write.record, int(draft.parts.clock_s())
        after = grown(self._record, made.blocks, made.date, now_s, made.vocabulary)
        write.changed, write.why_refused = after, lambda: why_refused(after, draft.parts.store)

    async def store(self, write: Write, draft: Draft, last: Response) -> None:
        record, store = write.record if write.stored else None, self._locks.store
        if write.changed is None:
            if record is not None:
                await store.put(record)
            return
        lock = self._held.lock if self._held is not None else None
        if not await store.change(write.changed, record, lock=lock):
            raise await why_refused(write.changed, store)

    async def committed(self, write: Write, draft: Draft) -> None:
        if write.changed is not None and self._held is not None:
            self._held.leave()  # the store has freed it with the change


async def why_refused(conversation: Record, store: Store) -> ApiError:
    """Why a store has refused a conversation's next version: another change came first, or the
    conversation was deleted."""
    if isinstance(await store.get(conversation.id, conversation.owner), Record):
        return locked()
    return NotFound(
        "The conversation was deleted while this response was made in it: begin another one.",
        param="conversation",
        code="conversation_deleted",
    )

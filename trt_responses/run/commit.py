"""What is kept of a response when it ends: its record, and its part of a conversation.

Called before the end is told, so that nobody hears of what is not stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trt_responses.errors import NotFound
from trt_responses.features.conversations.conversations import grown
from trt_responses.features.conversations.locks import locked
from trt_responses.prompt.output_blocks import output_blocks
from trt_responses.store import Record, Records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trt_responses.errors import ApiError
    from trt_responses.features.compaction.compaction import Compaction
    from trt_responses.prompt.prompt import Prompt
    from trt_responses.run.parts import Parts
    from trt_responses.run.run import Run
    from trt_responses.wire.response import Response

    Keep = Callable[[Record, Record | None, Run, Response], Awaitable[None]]
    """Takes a response's record, and the next version of the conversation that it is a part of."""

CONTINUABLE = ("completed", "incomplete")
"""The ways of ending after which a response can be continued."""


class Memory(Records, Protocol):
    """The responses of one connection, kept beside the store."""

    def remember(self, record: Record) -> None: ...


class Commit:
    """Keeps one run's response, in the store or where the run says."""

    def __init__(
        self,
        parts: Parts,
        prompt: Prompt,
        owner: str,
        keep: Keep | None,
        memory: Memory | None,
        compaction: Compaction | None,
    ) -> None:
        self._parts = parts
        self._prompt = prompt
        self._owner = owner
        self._keep = keep
        self._memory = memory
        self._compaction = compaction

    async def __call__(self, last: Response, run: Run) -> None:
        """Commit the run. Its conversation is free for others when this returns, so that who hears
        of the end may go on with it."""
        try:
            await self._commit(last, run)
        finally:
            if run.lock is not None:
                await run.lock.free()

    async def _commit(self, last: Response, run: Run) -> None:
        conversation = self._prompt.conversation if last.status in CONTINUABLE else None
        stored = last.store and (last.status != "cancelled" or last.background)
        if not stored and conversation is None and self._memory is None:
            return
        record = await self._record(last, run)
        next_version = None
        if conversation is not None:
            now_s = int(self._parts.clock_s())
            next_version = grown(conversation, record.blocks, record.date, now_s, record.vocabulary)
        if stored:
            await (self._keep or self._put)(record, next_version, run, last)
        elif next_version is not None:
            await self._change(next_version, None, run)
        if next_version is not None and run.lock is not None:
            run.lock.leave()  # the store has freed it with the change
        if self._memory is not None and record.continuable:
            self._memory.remember(record)

    async def _record(self, last: Response, run: Run) -> Record:
        prompt = self._prompt
        own = await output_blocks(last, run.reader, self._parts.renderer)
        if self._compaction is not None and last.output:
            own[0] = self._compaction.block(last.output[0])
        return Record(
            id=last.id,
            owner=self._owner,
            body=bytes(memoryview(run.log.json_of(last))),
            blocks=(*prompt.blocks, *own),
            prior_count=prompt.prior_count,
            input_count=len(prompt.blocks) - prompt.prior_count,
            continuable=last.status in CONTINUABLE,
            date=prompt.date,
            created_at=last.created_at,
            vocabulary=self._parts.dialect.vocabulary,
        )

    async def _put(
        self, record: Record, conversation: Record | None, run: Run, last: Response
    ) -> None:
        if conversation is None:
            await self._parts.store.put(record)
        else:
            await self._change(conversation, record, run)

    async def _change(self, conversation: Record, record: Record | None, run: Run) -> None:
        lock = run.lock.lock if run.lock is not None else None
        if not await self._parts.store.change(conversation, record, lock=lock):
            raise await why_refused(conversation, self._parts.store)


async def why_refused(conversation: Record, records: Records) -> ApiError:
    """Why a store has refused a conversation's next version: another change came first, or the
    conversation was deleted."""
    if isinstance(await records.get(conversation.id, conversation.owner), Record):
        return locked()
    return NotFound(
        "The conversation was deleted while this response was made in it: begin another one.",
        param="conversation",
        code="conversation_deleted",
    )

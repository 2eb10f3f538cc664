"""A store that keeps the records of some owners for a shorter time, and of others none.

Around any other store. Knows no keys: only seconds by owner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trt_responses.errors import InvalidRequest
from trt_responses.store import Expired, Found, Job, Record
from trt_responses.stores.around import Around
from trt_responses.stores.whole import WholeStore


def nothing_is_kept(param: str | None = None) -> InvalidRequest:
    """The refusal of a request that can only be served from a store."""
    return InvalidRequest(
        "Nothing of this key's owner is stored: use `store: false`, without `background`, "
        "`conversation` and resumable streams.",
        param=param,
        code="zero_retention",
    )


class RetainedStore(Around):
    """`kept_s` gives the seconds of each owner that has a rule of its own."""

    def __init__(
        self,
        inner: WholeStore,
        kept_s: Callable[[], Mapping[str, int]],
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(inner)
        self._kept_s = kept_s
        self._clock_s = clock_s
        self._made: dict[str, int] = {}
        """When records were made, as of the last sweep: they are not read again before they are
        due."""

    def keeps(self, owner: str) -> bool:
        return self._kept_s().get(owner) != 0

    async def get(self, response_id: str, owner: str) -> Found:
        found = await self.inner.get(response_id, owner)
        if isinstance(found, (Record, Job)) and self._is_due(found.created_at, owner):
            return Expired(response_id)
        return found

    async def put(self, record: Record) -> None:
        self._check(record.owner)
        await self.inner.put(record)

    async def put_job(self, job: Job) -> None:
        self._check(job.owner)
        await self.inner.put_job(job)

    async def change(self, conversation: Record, *more: Any, **options: Any) -> bool:
        self._check(conversation.owner)
        return await self.inner.change(conversation, *more, **options)

    async def finish_job(self, record: Record, *more: Any, **options: Any) -> bool:
        if not self.keeps(record.owner):  # its key changed while it ran
            await self.inner.delete(record.id, record.owner)
        return await self.inner.finish_job(record, *more, **options)

    async def sweep(self, on_delete: Iterable[Callable[[str, str], None]] = ()) -> int:
        """Delete what is due. Returns how many records that were."""
        made, deleted = dict[str, int](), 0
        for owner in self._kept_s():
            for name in await self.inner.ids_of(owner):
                known = self._made.get(name)
                if known is None or self._is_due(known, owner):
                    found = await self.inner.get(name, owner)
                    if not isinstance(found, (Record, Job)):
                        continue
                    known = found.created_at
                if not self._is_due(known, owner):
                    made[name] = known
                    continue
                deleted += await self.inner.delete(name, owner)
                for hears in on_delete:
                    hears(name, owner)
        self._made = made
        return deleted

    def _is_due(self, made_s: int, owner: str) -> bool:
        kept_s = self._kept_s().get(owner)
        return kept_s is not None and made_s + kept_s <= self._clock_s()

    def _check(self, owner: str) -> None:
        if not self.keeps(owner):
            raise nothing_is_kept()

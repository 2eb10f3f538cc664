"""What is kept of a response when it ends.

Called before the end is sent, so that clients see only stored ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trt_responses.prompt.output_blocks import output_blocks
from trt_responses.store import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trt_responses.errors import ApiError
    from trt_responses.run.draft import Draft
    from trt_responses.run.run import Run
    from trt_responses.wire.response import Response


CONTINUABLE = ("completed", "incomplete")
"""The ways of ending after which a response can be continued."""


@dataclass(slots=True)
class Write:
    """What is stored of a response, in one transaction."""

    record: Record
    stored: bool
    """Whether the response itself is."""
    run: Run
    changed: Record | None = None
    """The next version of another record."""
    why_refused: Callable[[], Awaitable[ApiError]] | None = None
    """Why a store did not take the change."""


async def commit_run(last: Response, run: Run) -> None:
    """Store a run's response, and what its steps add."""
    draft = run.draft
    assert draft is not None, "until the end is sent"
    stored = last.store and (last.status != "cancelled" or run.kept)
    commits, committed = draft.joints["commit"], draft.joints["committed"]
    if not (stored or commits or committed):
        return
    write = Write(await _record(last, run, draft), stored, run)
    for commit in commits:
        await commit(write, draft, last)
    if stores := draft.joints["store"]:
        await stores[0](write, draft, last)
    elif stored:
        await draft.parts.store.put(write.record)
    for after in committed:
        await after(write, draft)


async def _record(last: Response, run: Run, draft: Draft) -> Record:
    prompt, parts = draft.prompt, draft.parts
    own = await output_blocks(last, run.reader, parts.renderer)
    for blocks in draft.joints["blocks"]:
        blocks(own, last)
    return Record(
        id=last.id,
        owner=draft.owner,
        body=bytes(memoryview(run.log.json_of(last))),
        blocks=(*prompt.blocks, *own),
        prior_count=prompt.prior_count,
        input_count=len(prompt.blocks) - prompt.prior_count,
        continuable=last.status in CONTINUABLE,
        date=prompt.date,
        created_at=last.created_at,
        vocabulary=parts.dialect.vocabulary,
    )

"""The conversation that a request continues, looked up by the id of its last response.

Knows blocks and records; knows no HTTP and no concrete store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.errors import IN_PROGRESS_S, InvalidRequest
from trt_responses.frozen import dataclass
from trt_responses.store import Block, Expired, Job, Record

if TYPE_CHECKING:
    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.parts import Parts
    from trt_responses.store import Records


@dataclass(frozen=True, slots=True)
class Prior:
    """The conversation before a request. `date` is None at the start of a chain."""

    blocks: tuple[Block, ...] = ()
    date: str | None = None
    record: Record | None = None
    """Where that stands."""


NO_PRIOR = Prior()


async def prior_of(accepted: Accepted, records: Records, owner: str) -> Prior:
    """The conversation that a request continues, looked up in the records."""
    previous_id = accepted.previous_response_id
    if previous_id is None:
        return NO_PRIOR
    match await records.get(previous_id, owner):
        case Record(version=0) as record:
            return _continued(record)
        case Job(lost=False):
            raise InvalidRequest(
                f"Response '{previous_id}' is still being made: wait until it has ended.",
                status=409,
                param="previous_response_id",
                code="previous_response_in_progress",
                retry_after_s=IN_PROGRESS_S,
            )
        case Job():
            raise _not_continuable(previous_id)
        case found:
            raise _not_found(previous_id, expired=isinstance(found, Expired))


async def spoken_here(record: Record, parts: Parts) -> Record:
    """The record with blocks of this model's vocabulary, unchanged if they are so already."""
    if record.vocabulary == parts.dialect.vocabulary:
        return record
    if parts.translation is None:
        raise InvalidRequest(
            f"A model of another vocabulary has made '{record.id}', and going on with those is "
            "not installed here: send the conversation's items instead.",
            code="other_vocabulary",
        )
    return await parts.translation(record, parts)


def _continued(record: Record) -> Prior:
    if not record.continuable:
        raise _not_continuable(record.id)
    return Prior(record.blocks, record.date, record)


def _not_continuable(response_id: str) -> InvalidRequest:
    return InvalidRequest(
        f"Response '{response_id}' failed or was cancelled and cannot be continued.",
        param="previous_response_id",
        code="previous_response_not_continuable",
    )


def _not_found(response_id: str, *, expired: bool) -> InvalidRequest:
    if expired:
        return InvalidRequest(
            f"Previous response with id '{response_id:.100}' has expired, for its age or for want "
            "of room: send the conversation's items instead.",
            status=404,
            param="previous_response_id",
            code="previous_response_expired",
        )
    return InvalidRequest(
        f"Previous response with id '{response_id:.100}' not found: it was never stored, or has "
        "been deleted.",
        status=404,
        param="previous_response_id",
        code="previous_response_not_found",
    )

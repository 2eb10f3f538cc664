"""The seam of items that stand for others: references to items that were given before, and items
that a client carries sealed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from trt_responses.accept.accepted import Accepted
from trt_responses.dialect import Dialect
from trt_responses.store import Block, Records
from trt_responses.wire import items as i


class RequestItems(NamedTuple):
    """What a request brings to a conversation."""

    accepted: Accepted
    prior: Sequence[Block]
    owner: str
    records: Records
    dialect: Dialect
    model: str
    silent: Collection[int] = ()
    """The places of items that say nothing to the model."""

    def place(self, number: int) -> str:
        """The place of an item in the request, for faults."""
        places = self.accepted.places
        return f"input[{number}]" if places is None else places[number].item


class Render(Protocol):
    """Makes blocks of items; results find their calls in `prior`."""

    async def __call__(
        self, items: str | Sequence[i.InputItem], *, prior: Sequence[Block]
    ) -> list[Block]: ...


class Carrier(Protocol):
    """Makes blocks of items of which some stand for others."""

    async def __call__(
        self, given: RequestItems, sent: Sequence[i.SentItem], render: Render
    ) -> tuple[list[Block], str | None]:
        """The blocks, and the date of the conversation that the items carry, if they carry one."""
        ...

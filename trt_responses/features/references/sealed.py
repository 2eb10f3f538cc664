"""The seam of what clients carry for the server, sealed in items: thoughts with their ids, and
compactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from trt_responses.store import Kind
from trt_responses.wire import items as i


class SealedCompaction(NamedTuple):
    """The content of a compaction item: ids that stand for what was left out."""

    date: str
    """The date in the system message, so that a prefix outlives a midnight."""
    calls: Mapping[str, str]
    """The calls among the ids whose results may come later: the recipient of each by its id."""
    ids: bytes
    """The ids, unsigned 32-bit, in this machine's byte order."""
    messages: Sequence[tuple[Kind, int, int]] | None = None
    """The places in the ids, in bytes, where messages of users and developers begin and end: then
    the item needs no other beside it. None: those messages stand beside the item."""


class OpenedTurns(Protocol):
    """The turns that a request's items carry. Callers ask in the items' order."""

    @property
    def date(self) -> str | None:
        """The date of the conversation's first turn that is known."""
        ...

    def ids_at(self, place: int, item: i.InputItem) -> bytes | None:
        """The ids that the model wrote for the item at this place; None where it carries none, or
        its words are others now."""
        ...


class Opener(Protocol):
    """Opens sealed items for their owner alone."""

    async def opened_turns(
        self,
        items: str | Sequence[i.SentItem],
        owner: str,
        pause: Callable[[], Awaitable[None]],
        places: Sequence[i.ItemPlace] | None = None,
        *,
        vocabulary: str = "",
        verifies: bool = False,
    ) -> OpenedTurns:
        """What reasoning items carry. With `verifies`, an item whose words are not those that were
        sealed is refused."""
        ...

    def open_compaction(
        self, text: str, owner: str, model: str, param: str, vocabulary: str = ""
    ) -> SealedCompaction:
        """The content of a compaction. Raises an `InvalidRequest` where it cannot be opened."""
        ...


class Sealing(Opener, Protocol):
    """Seals items, too."""

    def seal_compaction(
        self, compaction: SealedCompaction, owner: str, model: str, vocabulary: str = ""
    ) -> str: ...

    def signature(self, signed: Sequence[str], owner: str) -> str:
        """A signature of texts that a client sends back unchanged."""
        ...

    def has_signed(self, signature: str, signed: Sequence[str], owner: str) -> bool: ...

"""Makes the blocks of items that refer to others, or that a client carries sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trt_responses.errors import unsupported_value
from trt_responses.features.references.references import resolved
from trt_responses.features.references.sealed import Opener, SealedCompaction
from trt_responses.prompt.carrier import Render, RequestItems
from trt_responses.store import Block, Kind
from trt_responses.wire.items import Compaction, SentItem
from trt_responses.wire.past_calls import settled_places


class Carrier:
    """Looks up what items refer to, and opens what they carry."""

    def __init__(self, opener: Opener | None) -> None:
        """`opener` is None where sealed items are not installed."""
        self._opener = opener

    async def __call__(
        self, given: RequestItems, sent: Sequence[SentItem], render: Render
    ) -> tuple[list[Block], str | None]:
        accepted, dialect, turns = given.accepted, given.dialect, None
        if self._opener is not None:
            turns = await self._opener.opened_turns(
                sent,
                given.owner,
                dialect.renderer.pause,
                accepted.places,
                vocabulary=dialect.vocabulary,
                verifies=accepted.verifies,
            )
        compactions = self._compactions(given, sent)
        items = await resolved(sent, given)
        rendered = await render(items.items, prior=(*given.prior, *calls_of(compactions)))
        for place, opened in compactions.items():
            kind: Kind = "summary" if opened.messages is None else "context"
            rendered[place] = replace(rendered[place], kind=kind, ids=opened.ids)
        for place in {*given.silent, *settled_places(sent)}:
            rendered[place] = replace(rendered[place], ids=b"")
        date = turns.date if turns is not None else None
        date = next((opened.date for opened in compactions.values()), date)
        return await items.blocks(rendered, turns, dialect.renderer.pause), date

    def _compactions(
        self, given: RequestItems, sent: Sequence[SentItem]
    ) -> dict[int, SealedCompaction]:
        """The content of the compactions among the items, by their places."""
        compactions = {}
        for number, item in enumerate(sent):
            if isinstance(item, Compaction):
                param = f"{given.place(number)}.encrypted_content"
                if self._opener is None:
                    raise unsupported_value(param, "sealed items are not installed here")
                compactions[number] = self._opener.open_compaction(
                    item.encrypted_content,
                    given.owner,
                    given.model,
                    param,
                    given.dialect.vocabulary,
                )
        return compactions


def calls_of(compactions: Mapping[int, SealedCompaction]) -> list[Block]:
    """The calls that compactions carry, for results that come later."""
    return [
        Block("call", b"", b"", call_id, callee)
        for opened in compactions.values()
        for call_id, callee in opened.calls.items()
    ]

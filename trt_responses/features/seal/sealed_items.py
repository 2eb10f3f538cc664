"""Seals a turn's ids into its reasoning items, for the client to carry.

As soon as a thought is written its item carries that thought. In the last snapshot it carries what
came after it too, up to the next thought, so that a call renders to the ids of the model as well.
Knows runs by their reader; knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

from trt_responses.dialect import Renderer
from trt_responses.features.references.digest import digest
from trt_responses.features.seal.sealer import Sealer
from trt_responses.features.seal.turn import SealedTurn, TurnMessage
from trt_responses.frozen import dataclass, replace
from trt_responses.language.reader import Reader
from trt_responses.prompt.output_blocks import lasting, output_blocks
from trt_responses.run.run import Run
from trt_responses.wire import output as o
from trt_responses.wire.response import Response


@dataclass(frozen=True, slots=True)
class TurnSealer:
    """Seals the items of one run."""

    sealer: Sealer
    owner: str
    date: str
    reader: Reader
    renderer: Renderer
    vocabulary: str

    def thought(self, item: o.OutputReasoning, message: int) -> str:
        """The sealed content of the model's message of this number. Without ids when the message
        was mended: they are not known before it is rendered anew."""
        span = self.reader.messages[message]
        hashed = digest(item)
        if hashed is None or span.repaired or span.recipient is not None:
            return self._sealed(())
        ids = self.renderer.own_ids(self.reader.kept, span)
        return self._sealed((TurnMessage(hashed, ids.tobytes()),))

    async def whole(self, last: Response, run: Run) -> Response:
        """The snapshot, with all that its thoughts can carry."""
        blocks = await output_blocks(last, run.reader, self.renderer)
        items = [item for item in last.output if lasting(item)]
        written = [
            TurnMessage(hashed, block.ids) if (hashed := digest(item)) is not None else None
            for item, block in zip(items, blocks, strict=True)
        ]
        sealed = {item.id: self._sealed(turn) for item, turn in _turns(items, written)}
        output = tuple(
            o.sealed(item, sealed.get(item.id)) if isinstance(item, o.OutputReasoning) else item
            for item in last.output
        )
        return replace(last, output=output)

    def _sealed(self, messages: Sequence[TurnMessage]) -> str:
        turn = SealedTurn(self.date, tuple(messages), self.vocabulary)
        return self.sealer.seal(turn, self.owner)


def _turns(
    items: Sequence[o.OutputItem], written: Sequence[TurnMessage | None]
) -> list[tuple[o.OutputReasoning, list[TurnMessage]]]:
    """The messages that each thought carries: its own first, then those up to the next thought;
    what stands before the first thought goes with it."""
    turns: list[tuple[o.OutputReasoning, list[TurnMessage]]] = []
    before: list[TurnMessage] = []
    for item, message in zip(items, written, strict=True):
        if message is None:
            continue
        if isinstance(item, o.OutputReasoning):
            turns.append((item, [message, *before]))
            before = []
        elif turns:
            turns[-1][1].append(message)
        else:
            before.append(message)
    return turns

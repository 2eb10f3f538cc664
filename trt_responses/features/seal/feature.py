"""Thoughts that their client carries, sealed."""

from __future__ import annotations

from trt_responses.accept.accepted import Accepted
from trt_responses.feature import Step
from trt_responses.features.seal.sealed_items import TurnSealer
from trt_responses.features.seal.sealer import Sealer
from trt_responses.frozen import replace
from trt_responses.run.draft import Draft
from trt_responses.run.run import Run
from trt_responses.wire.events import OutputItemAdded, OutputItemDone
from trt_responses.wire.output import OutputHostedCall, OutputReasoning
from trt_responses.wire.response import Response


class Seals:
    """Seals the thoughts of those who ask for it."""

    reads = ("seals",)

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def accept(self, accepted: Accepted) -> Step | None:
        return SealStep(self._sealer) if accepted.seals else None


class SealStep(Step):
    """Seals the thoughts of one run."""

    order = 60

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._turn: TurnSealer | None = None
        self._draft: Draft | None = None

    def write(self, draft: Draft) -> None:
        if draft.accepted.seals:
            self._draft, parts, date = draft, draft.parts, draft.prompt.date
            self._turn = TurnSealer(
                self._sealer,
                draft.owner,
                date,
                draft.reader,
                parts.renderer,
                parts.dialect.vocabulary,
            )
            draft.machine_options["seal"] = self._turn.thought

    async def conclude(self, last: Response, run: Run) -> Response:
        if self._turn is None or self._draft is None:
            return last
        if last.status in ("completed", "incomplete") and _wants_carrier(last):
            last = _with_carrier(last, self._draft)
        return await self._turn.whole(last, run)


def _wants_carrier(last: Response) -> bool:
    """Whether tools have answered, and no thought can carry that."""
    called = any(isinstance(item, OutputHostedCall) for item in last.output)
    return called and not any(item.type == "reasoning" for item in last.output)


def _with_carrier(last: Response, draft: Draft) -> Response:
    """Tell a thought without text: the client brings it back with the seal that the last snapshot
    gives it."""
    log, index, item = draft.log, len(last.output), OutputReasoning(draft.mint("rs"))
    log.append(OutputItemAdded(index, item))
    log.append(OutputItemDone(index, replace(item, status="completed")))
    return replace(last, output=log.output)

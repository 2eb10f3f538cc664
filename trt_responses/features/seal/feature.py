"""Thoughts that their client carries, sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.feature import Step
from trt_responses.features.seal.sealed_items import TurnSealer

if TYPE_CHECKING:
    from trt_responses.accept.accepted import Accepted
    from trt_responses.features.seal.sealer import Sealer
    from trt_responses.run.draft import Draft
    from trt_responses.run.run import Run
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

    def write(self, draft: Draft) -> None:
        if draft.accepted.seals:
            parts, date = draft.parts, draft.prompt.date
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
        return last if self._turn is None else await self._turn.whole(last, run)

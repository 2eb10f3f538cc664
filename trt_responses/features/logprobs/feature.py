"""Log probabilities of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.feature import Step
from trt_responses.features.logprobs.logprobs import ScoredSink, check_logprobs
from trt_responses.features.logprobs.reader import ScoredReader

if TYPE_CHECKING:
    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.draft import Draft


class Logprobs:
    """Tells clients how likely each token was."""

    reads = ("scored",)

    def accept(self, accepted: Accepted) -> Step | None:
        return LogprobsStep() if accepted.scored else None


class LogprobsStep(Step):
    """Has one run tell how likely each token was."""

    moves = False  # how likely each token was is not kept

    async def acquire(self, draft: Draft) -> None:
        check_logprobs(draft.accepted.sampling.logprobs, draft.parts.engine.limits())

    def write(self, draft: Draft) -> None:
        if draft.accepted.scored and draft.answers:
            draft.reader, draft.sink = ScoredReader(draft.reader), ScoredSink

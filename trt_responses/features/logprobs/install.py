"""Log probabilities of requests."""

from __future__ import annotations

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import unsupported_value
from trt_responses.feature import Step
from trt_responses.features.logprobs.reader import ScoredReader, ScoredSink
from trt_responses.run.draft import Draft
from trt_responses.setup.server import Server
from trt_responses.wire.judge import LOGPROBS


def install(server: Server) -> None:
    server.features.append(Logprobs())


class Logprobs:
    """Tells clients how likely each token was."""

    reads = ("scored",)

    def accept(self, accepted: Accepted) -> Step | None:
        return LogprobsStep() if accepted.scored else None


class LogprobsStep(Step):
    """Has one run tell how likely each token was."""

    moves = False  # how likely each token was is not kept

    async def acquire(self, draft: Draft) -> None:
        """Refuse a number of likely tokens that the engine does not tell; None asks for none."""
        count, most = draft.accepted.sampling.logprobs, draft.parts.engine.limits().max_logprobs
        if count is None:
            return
        if most < 1:
            raise unsupported_value("include", f"this engine does not tell '{LOGPROBS}'")
        if count > most:
            raise unsupported_value(
                "top_logprobs", f"this engine tells {most} at most, got {count}"
            )

    def write(self, draft: Draft) -> None:
        if draft.accepted.scored and draft.answers:
            draft.reader, draft.sink = ScoredReader(draft.reader), ScoredSink

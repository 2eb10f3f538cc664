"""The fields of vLLM's and llama.cpp's APIs: has an answer follow the constraint that a request has
in the words of another server."""

from __future__ import annotations

from dataclasses import replace

from trt_responses.accept.accepted import Accepted, AnswerFormat
from trt_responses.feature import Step
from trt_responses.features.peer_words.sampling import NOTHING, SamplingStep, sampling_of
from trt_responses.features.peer_words.words import FIELDS, answer_of, check_alone
from trt_responses.run.draft import Draft
from trt_responses.setup.server import Server


def install(server: Server) -> None:
    server.own_fields += FIELDS
    server.features += (PeerWords(), PeerSampling())


class PeerWords:
    """Reads the fields of other servers."""

    reads = ("ignored",)

    def accept(self, accepted: Accepted) -> Step | None:
        answer = answer_of(accepted.ignored)
        if answer is None:
            return None
        check_alone(answer, accepted.answer)
        return ConstraintStep(answer)


class PeerSampling:
    """Reads the options of sampling that other servers have."""

    reads = ("ignored",)

    def accept(self, accepted: Accepted) -> Step | None:
        sampling = sampling_of(accepted.ignored)
        return None if sampling == NOTHING else SamplingStep(sampling)


class ConstraintStep(Step):
    """Gives one run the form of its answer. A compaction comes later, and takes it away again."""

    order = 15

    def __init__(self, answer: AnswerFormat) -> None:
        self._answer = answer

    async def acquire(self, draft: Draft) -> None:
        draft.accepted = replace(draft.accepted, answer=self._answer)

    async def offer(self, draft: Draft) -> None:
        """The same where only tokens are counted: the model is shown a schema."""
        await self.acquire(draft)

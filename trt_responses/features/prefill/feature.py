"""Requests that have a prompt read, for another one that goes on from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.feature import Step
from trt_responses.features.prefill.prefill import TOKENS, Prefill, PrefillSink

if TYPE_CHECKING:
    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.draft import Draft


class Prefills:
    """Reads a prompt into the engine's cache, and writes nothing."""

    reads = ("generates",)

    def accept(self, accepted: Accepted) -> Step | None:
        return None if accepted.generates else PrefillStep()


class PrefillStep(Step):
    """Has one run read its prompt, and no more."""

    async def prompted(self, draft: Draft) -> None:
        if draft.answers:
            draft.answers, draft.writes_tokens = False, TOKENS
            draft.generation, draft.sink = Prefill, PrefillSink

"""Stop sequences of requests."""

from __future__ import annotations

from collections.abc import Sequence

from trt_responses.accept.accepted import Accepted
from trt_responses.feature import Step
from trt_responses.features.stop.stop import StopText
from trt_responses.run.draft import Draft
from trt_responses.setup.server import Server
from trt_responses.wire.output import Phase


def install(server: Server) -> None:
    server.features.append(Stop())


class Stop:
    """Ends an answer at the client's texts."""

    reads = ("stop",)

    def accept(self, accepted: Accepted) -> Step | None:
        return StopStep(accepted.stop) if accepted.stop else None


class StopStep(Step):
    """Ends the answers of one run at some texts."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops

    def write(self, draft: Draft) -> None:
        if not draft.accepted.compacts:
            draft.machine_options.setdefault("answer_text", self._text)

    def _text(self, phase: Phase) -> StopText | None:
        return StopText(self._stops) if phase == "final_answer" else None

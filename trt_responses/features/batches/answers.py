"""How a batch's request is answered: each API of a batch says it of its own bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from trt_responses.accept.model_names import ModelNames
from trt_responses.web.body import check_values, in_pieces
from trt_responses.web.responses import snapshot
from trt_responses.wire.dialect import OPENAI

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.accept.accepted import Accepted
    from trt_responses.run.request import NewSpelling
    from trt_responses.run.run import Run
    from trt_responses.web.shared import Shared

    Wanted = tuple[Accepted, bool, NewSpelling | None, Callable[[Run], bytes]]
    """A request, whether it wants a stream, and what its answer is written with: the last one
    writes that of a run that has ended."""


@runtime_checkable
class AnswersBatches(Protocol):
    """An API whose requests may stand in a batch."""

    batch_path: str

    async def wanted(self, body: bytes) -> Wanted:
        """Reads a body."""
        ...


class ResponsesAnswers:
    """The Responses API."""

    batch_path = "/v1/responses"

    def __init__(self, shared: Shared) -> None:
        self._names = shared.of(ModelNames)
        self._steps = shared.steps
        self._limits = shared.limits

    async def wanted(self, body: bytes) -> Wanted:
        await check_values(body, self._limits)
        accepted, stream, _ = await in_pieces(self._steps(body, OPENAI))
        self._names.check(accepted.echo.model)
        return accepted, stream or accepted.echo.background, None, snapshot

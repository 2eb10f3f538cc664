"""What one run is made from. Values only: what is made of them is in `assembly.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.frozen import dataclass
from trt_responses.wire.dialect import OPENAI

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.accept.accepted import Accepted
    from trt_responses.feature import Step
    from trt_responses.log.entries import Spelling
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.response import Response

    NewSpelling = Callable[[Response, int], Spelling]


@dataclass(frozen=True)
class RunRequest:
    """A request for one run."""

    accepted: Accepted
    owner: str
    arrival_ns: int
    dialect: Dialect = OPENAI
    spelling: NewSpelling | None = None
    """Writes the log as another API's; made from the response and the number of the prompt's
    tokens."""
    steps: tuple[Step, ...] = ()
    """Those of the caller that starts the run, besides the features'."""
    id: str | None = None
    """Of a response that is made again."""
    body: bytes = b""
    """The request as it came, where another server may go on with the run."""

"""What one run is made from. Values only: what is made of them is in `assembly.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.frozen import dataclass
from trt_responses.wire.dialect import OPENAI

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.accept.accepted import Accepted
    from trt_responses.features.background.replayed import Before
    from trt_responses.log.entries import Spelling
    from trt_responses.run.commit import Keep, Memory
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.response import Response

    NewSpelling = Callable[[Response, int], Spelling]


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What one run is made from, besides the parts that all runs have."""

    response_id: str
    accepted: Accepted
    owner: str
    arrival_ns: int
    keep: Keep | None = None
    """Takes the run's record in the place of the store."""
    dialect: Dialect = OPENAI
    spelling: NewSpelling | None = None
    """Writes the log as another API's; made from the response and the number of the prompt's
    tokens."""
    memory: Memory | None = None
    """Holds responses that can be continued, be they stored or not."""
    before: Before | None = None
    """The run as another server left it."""

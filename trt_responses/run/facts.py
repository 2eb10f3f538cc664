"""What listeners hear of a run when it is over. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from trt_responses.frozen import dataclass
from trt_responses.language.fragments import RepairKind
from trt_responses.run.ending import End
from trt_responses.run.origin import NOWHERE, Origin
from trt_responses.run.turns import ToolRun
from trt_responses.wire import response as r


@dataclass(frozen=True)
class RunFacts:
    """What listeners hear of a run when it is over."""

    response: r.Response
    repairs: Mapping[RepairKind, int]
    arrival_ns: int
    requested_ns: int | None
    """When the engine got the first request."""
    first_token_ns: int | None
    last_token_ns: int | None
    """The time of the engine's last token."""
    end_ns: int
    trace: object = None
    """What a recorder says of it."""
    ends: Sequence[End] = ()
    """How each of its engine requests ended."""
    origin: Origin = NOWHERE
    tool_runs: Sequence[ToolRun] = ()
    """The calls that the server ran."""


class Progress(NamedTuple):
    """How far a run has come."""

    id: str
    first_token_ns: int | None
    tokens: int


class Listener(Protocol):
    """Hears of each run at its end."""

    def run_ended(self, facts: RunFacts) -> None: ...

"""What a step is, and what became of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from trt_responses.frozen import dataclass
from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Figures


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `proves` names a row of README by its words."""

    name: str
    what: str
    proves: str
    run: Callable[[Bench], Figures]
    seconds: Callable[[Bench], float]
    """The estimated duration."""
    skip: Callable[[Bench], str | None] = lambda _: None
    """Why the step does not apply, if that is known before it runs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one step."""

    step: Step
    state: Literal["held", "failed", "skipped"]
    seconds: float
    figures: Figures
    why: str = ""

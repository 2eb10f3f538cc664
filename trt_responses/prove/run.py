"""Runs the steps in their order, with a line for each before and after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from trt_responses.frozen import dataclass
from trt_responses.prove.bench import Bench
from trt_responses.prove.claims import Failed, Figures, Skipped
from trt_responses.prove.steps import Step

State = Literal["held", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one step."""

    step: Step
    state: State
    seconds: float
    figures: Figures
    why: str = ""


def announced(steps: Sequence[Step], bench: Bench) -> Iterator[str]:
    """The steps with their estimated times, and the sum."""
    total = 0.0
    for step in steps:
        why = step.skip(bench)
        seconds = 0.0 if why else step.estimated_s(bench)
        total += seconds
        yield f"  {step.name:<11} {f'skipped: {why}' if why else f'{shown(seconds)}, {step.what}'}"
    yield f"about {shown(total)} in all"


def run(steps: Sequence[Step], bench: Bench, say: Callable[[str], object]) -> list[Outcome]:
    """The outcomes of all steps. A failed step does not end the others; an interrupt does."""
    found: list[Outcome] = []
    try:
        for place, step in enumerate(steps, 1):
            say(f"[{place}/{len(steps)}] {step.name}: {step.what} …")
            outcome = attempt(step, bench)
            found.append(outcome)
            why = f": {outcome.why}" if outcome.why else ""
            say(f"    {outcome.state} in {shown(outcome.seconds)}{why}")
    except KeyboardInterrupt:
        found += [Outcome(step, "failed", 0.0, {}, "interrupted") for step in steps[len(found) :]]
    finally:
        bench.close()
    return found


def attempt(step: Step, bench: Bench) -> Outcome:
    """The outcome of one step."""
    if why := step.skip(bench):
        return Outcome(step, "skipped", 0.0, {}, why)
    began, why = time.monotonic(), ""
    state: State = "held"
    figures: Figures = {}
    try:
        figures = step.run(bench)
    except Skipped as reason:
        state, why = "skipped", str(reason)
    except Exception as error:  # of any class: the other steps go on, with an engine of their own
        bench.close()
        state, figures = "failed", getattr(error, "figures", {})
        why = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
    return Outcome(step, state, round(time.monotonic() - began, 1), figures, why)


def shown(seconds: float) -> str:
    """A duration for a person."""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"

"""How tokens are drawn, and how many a thought may take."""

from __future__ import annotations

from typing import Protocol

from trt_responses.accept.accepted import Effort, ThoughtBudget
from trt_responses.engine import GenerateOptions

MINIMAL_THOUGHT = 64
"""Tokens of a thought at effort `minimal`."""
EFFORT_BUDGETS = {"none": 0, "minimal": MINIMAL_THOUGHT}


class Sampled(Protocol):
    """A request's fields of sampling; None stands for the default."""

    @property
    def temperature(self) -> float | None: ...

    @property
    def top_p(self) -> float | None: ...

    @property
    def top_k(self) -> int | None: ...

    @property
    def min_p(self) -> float | None: ...

    @property
    def presence_penalty(self) -> float | None: ...

    @property
    def frequency_penalty(self) -> float | None: ...

    @property
    def seed(self) -> int | None: ...


def thought_of(effort: Effort | None, most: int | None) -> ThoughtBudget | None:
    """The budget of a thought: the smaller of what the effort and the bound give."""
    by_effort = EFFORT_BUDGETS.get(effort or "")
    if by_effort is not None:
        tokens = by_effort if most is None else min(by_effort, most)
        return ThoughtBudget(tokens, "reasoning.effort")
    return None if most is None else ThoughtBudget(most, "reasoning.max_tokens")


def sampling_of(request: Sampled, logprobs: int | None) -> GenerateOptions:
    """The options of sampling, with the default wherever the client gave none."""
    return GenerateOptions(
        max_tokens=0,  # each segment brings its own budget and stop ids
        stop_ids=(),
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=request.top_k or 0,
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        seed=request.seed,
        logprobs=logprobs,
    )

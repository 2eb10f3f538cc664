"""A run's draft with nothing in it but what a run itself reads."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, cast

from trt_responses.prompt.prompt import Prompt
from trt_responses.run.draft import Draft
from trt_responses.run.parts import Parts
from trt_responses.run.request import RunRequest
from trt_responses.steering.steering import SteeringRequest

if TYPE_CHECKING:
    from trt_responses.run.facts import Listener

NOT_READ = cast("Any", None)


def bare_draft(listener: Listener | None = None) -> Draft:
    """A draft at a fixed time, for a run whose test makes the generation."""
    parts = Parts(
        **cast(
            "Any",
            dict.fromkeys(("engine", "store", "dialect", "steering", "admission", "mint", "today")),
        ),
        model="",
        identity="",
        knowledge_cutoff="",
        clock_s=lambda: 1_700_000_009.5,
        clock_ns=lambda: 5,
        listeners=() if listener is None else (listener,),
    )
    request = RunRequest(NOT_READ, "", 0, id="resp_0")
    draft = Draft(request, (), parts)
    draft.prompt = Prompt(array("I"), (), 0, "")
    draft.steering = SteeringRequest(NOT_READ, NOT_READ, NOT_READ)
    return draft

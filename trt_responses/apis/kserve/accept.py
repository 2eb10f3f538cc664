"""Reads a request of KServe's protocol into an `Accepted`: a user's message, or a prompt of ids.

Knows no store, no run and no engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from trt_responses.accept.accepted import Accepted, ThoughtBudget, ToolChoice
from trt_responses.accept.sampling import EFFORT_BUDGETS, sampling_of
from trt_responses.apis.kserve.bodies import Wanted
from trt_responses.errors import invalid_value
from trt_responses.tokens.control import CONTROL, VOCABULARY_SIZE
from trt_responses.wire.response import Response

ENDS = frozenset({CONTROL.end, CONTROL.return_, CONTROL.call, CONTROL.endoftext})


def accept_kserve(wanted: Wanted, model: str) -> Accepted:
    """The accepted form of a request to the model or to one of its versions. It is never stored."""
    parameters = wanted.parameters
    prompt, begun = (None, ()) if wanted.ids is None else _split(wanted.ids)
    tokens = EFFORT_BUDGETS.get(parameters.reasoning_effort or "")
    return Accepted(
        input=wanted.text or "",
        previous_response_id=None,
        instructions=parameters.instructions,
        tools=(),
        choice=ToolChoice(()),
        answer=None,
        effort=parameters.reasoning_effort,
        thought=None if tokens is None else ThoughtBudget(tokens, "reasoning_effort"),
        sampling=sampling_of(parameters, None),
        own_temperature=parameters.temperature is not None,
        max_output_tokens=parameters.max_tokens,
        parallel_calls=False,
        truncates=False,
        seals=False,
        store=False,
        echo=Response(id="", created_at=0, model=model, store=False),
        ignored=dict(sorted((parameters.model_extra or {}).items())),
        unsupported_tools=(),
        prompt_ids=prompt,
        begun=begun,
    )


def _split(ids: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """The prompt, and what it says already of the message that the model is to write on: whatever
    follows the last `<|start|>` and a role, if that message is still open."""
    for place, token_id in enumerate(ids):
        if not 0 <= token_id < VOCABULARY_SIZE:
            raise invalid_value(
                f"input_ids[{place}]",
                f"it should be a token id below {VOCABULARY_SIZE}, got {token_id}",
            )
    starts = [place for place, token_id in enumerate(ids) if token_id == CONTROL.start]
    head = starts[-1] + 2 if starts else len(ids)
    if ENDS.intersection(ids[head:]):
        head = len(ids)
    return ids[:head], ids[head:]

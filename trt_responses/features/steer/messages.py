"""Messages that steer a running response: which may, what ends the run, and what goes on behind it.

Knows requests and runs; knows no connection and no store.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import InvalidRequest, invalid_value, refuse_longer
from trt_responses.frozen import replace
from trt_responses.prompt.conversation import input_blocks
from trt_responses.prompt.prompt import prompt_behind
from trt_responses.run.ending import End
from trt_responses.run.parts import Parts
from trt_responses.run.run import Run
from trt_responses.run.runs import Runs
from trt_responses.wire.base import ClosedObject
from trt_responses.wire.items import InputMessage
from trt_responses.wire.output import (
    OutputActionCall,
    OutputFunctionCall,
    OutputHostedCall,
)
from trt_responses.wire.request import Input  # pydantic reads the annotations
from trt_responses.wire.response import Response

Json = dict[str, Any]

STEERED = End("incomplete", reason="steered")
NOT_SUPPORTED = "steering_not_supported"
NOT_ACTIVE = "response_not_active"
CLIENT_CALLS = (OutputFunctionCall, OutputActionCall)


class Steering(ClosedObject):
    """What steers a response."""

    input: Input

    @property
    def messages(self) -> Sequence[InputMessage]:
        """The user's messages. Raises an `InvalidRequest` for anything else."""
        if isinstance(self.input, str):
            return [InputMessage(role="user", content=self.input)]
        if not self.input:
            raise invalid_value("input", "it needs at least one message")
        messages = []
        for place, item in enumerate(self.input):
            if not isinstance(item, InputMessage) or item.role != "user":
                raise invalid_value(f"input[{place}]", "only messages of the user steer a response")
            messages.append(item)
        return messages


async def check_goes_on(
    messages: Sequence[InputMessage], run: Run | None, runs: Runs, parts: Parts, owner: str
) -> None:
    """Raise an `ApiError` where no successor could be made with the messages now. `run`: what is
    steered, if this server makes it."""
    at_most = parts.engine.limits().context_tokens
    own = await input_blocks(messages, parts.renderer, (), at_most, note_media=parts.note_media)
    tokens = 0
    if run is not None and (draft := run.draft) is not None:
        *first, last = own
        prompt = dataclasses.replace(draft.prompt, blocks=(*draft.prompt.blocks, *first))
        ids, _ = await prompt_behind(prompt, last, draft.accepted, draft.parts)
        refuse_longer(len(ids), draft.limits.context_tokens - 1)  # what it wrote comes on top
        tokens = run.progress.tokens
    await runs.check(owner, tokens)


def steerable(run: Run) -> Accepted:
    """The request of a run that can be steered. Raises an `InvalidRequest` for any other."""
    if run.draft is None:
        raise not_active(run.id)
    accepted = run.draft.request.accepted
    check_steerable(accepted)
    return accepted


def check_steerable(accepted: Accepted) -> None:
    """Raise an `InvalidRequest` for the request of a response that cannot be steered."""
    bound = {
        "is in a conversation": accepted.conversation is not None,
        "is compacted by the server": accepted.compacts or accepted.compacts_beyond is not None,
        "has a prompt of the client's own": accepted.prompt_ids is not None,
        "generates nothing": not accepted.generates,
    }
    for why, given in bound.items():
        if given:
            raise InvalidRequest(f"A response that {why} cannot be steered.", code=NOT_SUPPORTED)


def not_active(response_id: str) -> InvalidRequest:
    """The error of a response that ends, or has ended, in another way."""
    return InvalidRequest(
        f"Response '{response_id:.100}' takes no steering any more: continue it by "
        "'previous_response_id' when it has ended.",
        status=409,
        code=NOT_ACTIVE,
    )


def successor(accepted: Accepted, response_id: str, messages: Sequence[InputMessage]) -> Accepted:
    """The request that goes on from a steered response, with its settings."""
    return replace(
        accepted,
        input=messages,
        places=None,
        begun=(),
        previous_response_id=response_id,
        echo=replace(accepted.echo, previous_response_id=response_id),
    )


def required_input(last: Response) -> list[Json]:
    """Of each call that waits for the client, the item that answers it, without the answer."""
    stubs: list[Json] = []
    for item in last.output:
        if isinstance(item, CLIENT_CALLS) and item.status == "completed":
            stubs.append(_stub(item))
        elif isinstance(item, OutputHostedCall) and not item.run_here:
            stubs.append({"type": "mcp_approval_response", "approval_request_id": item.id})
    return stubs


def _stub(call: OutputFunctionCall | OutputActionCall) -> Json:
    if call.type == "tool_search_call":
        return {"type": "tool_search_output", "call_id": call.call_id, "execution": "client"}
    stub = {"type": f"{call.type}_output", "call_id": call.call_id}
    return stub | {"name": call.name} if isinstance(call, OutputFunctionCall) else stub

"""Requests for a compaction only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import Field

from trt_responses import frozen
from trt_responses.accept.accepted import Accepted
from trt_responses.accept.responses import accept
from trt_responses.errors import Unsupported, unsupported_value
from trt_responses.wire.request import OptionalInput, Request


class CompactRequest(Request):
    """A request for a compaction only. Fields about the answer have no effect."""

    input: OptionalInput = Field(default_factory=list)


def accept_compaction(request: CompactRequest, built_in: Mapping[str, Sequence[str]]) -> Accepted:
    """What a request for a compaction asks for, which is given to the client and kept nowhere."""
    if request.background:
        raise unsupported_value(
            "background",
            "a compaction is answered at once, or comes in a response that a 'compaction_trigger' "
            "asks for",
        )
    if request.conversation is not None:
        raise Unsupported(
            "Unsupported parameter: 'conversation'. A compaction is kept nowhere: send the items, "
            "or a 'compaction_trigger' in a response of the conversation.",
            param="conversation",
        )
    accepted = accept(request, built_in=built_in)
    return replace(
        accepted, compacts=True, store=False, echo=frozen.replace(accepted.echo, store=False)
    )

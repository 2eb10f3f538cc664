"""The items of compactions: what asks for one, its output, and its event."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import invalid_value
from trt_responses.frozen import dataclass
from trt_responses.wire.events import FolderEvent, OfItem
from trt_responses.wire.output import OutputBeside
from trt_responses.wire.past_calls import Amending
from trt_responses.wire.request import Request


class CompactionTrigger(Amending):
    """A last item that asks for a compaction of what stands before it, and for no answer."""

    prefix = "cmpt"
    type: Literal["compaction_trigger"]

    def amended(self, request: Request) -> Request:
        """The request without the item. Raises an `InvalidRequest` if another one follows."""
        assert not isinstance(request.input, str), "the item stands in a list"
        *before, last = request.input
        if last is not self:
            place = next(n for n, item in enumerate(before) if item is self)
            raise invalid_value(f"input[{place}]", "a compaction_trigger must be the last item")
        return request.model_copy(update={"input": before})

    def accepted(self, accepted: Accepted) -> Accepted:
        return replace(accepted, compacts=True)


@dataclass(frozen=True)
class OutputCompaction(OutputBeside):
    """What stands for a conversation's older messages. `created_by` says whether a summary is in
    it or an extract."""

    id: str
    encrypted_content: str
    created_by: Literal["summary", "extract"]
    type: Literal["compaction"] = "compaction"


@dataclass(frozen=True)
class CompactionCompacting(OfItem, FolderEvent):
    """The conversation is being made short."""

    type: Literal["response.compaction.compacting"] = "response.compaction.compacting"

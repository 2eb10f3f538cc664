"""The output item of a compaction, and its event."""

from __future__ import annotations

from typing import Literal

from trt_responses.frozen import dataclass
from trt_responses.wire.events import FolderEvent, OfItem
from trt_responses.wire.output import OutputBeside


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

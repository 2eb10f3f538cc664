"""The output items of tool searches.

Like all values that are written down they have no slots: orjson takes 8 times as long over those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from trt_responses.frozen import dataclass
from trt_responses.wire.output import (
    HostedStatus,
    OutputActionCall,
    OutputBeside,
    OutputHostedCall,
    Status,
)


@dataclass(frozen=True)
class OutputToolSearchCall(OutputActionCall):
    """A search for deferred tools, which the client is to make."""

    id: str
    call_id: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    status: Status = "in_progress"
    execution: Literal["client"] = "client"
    type: Literal["tool_search_call"] = "tool_search_call"

    def text(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True)
class OutputHostedToolSearchCall(OutputHostedCall):
    """A search for deferred tools that is made here. What it found is an item of its own."""

    id: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    status: HostedStatus = "in_progress"
    call_id: None = None
    execution: Literal["server"] = "server"
    type: Literal["tool_search_call"] = "tool_search_call"
    is_code = False
    channel = "commentary"

    def text(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True)
class OutputToolSearchResult(OutputBeside):
    """The tools that such a search has found."""

    id: str
    tools: tuple[Mapping[str, Any], ...] = ()
    status: Status = "in_progress"
    call_id: None = None
    execution: Literal["server"] = "server"
    type: Literal["tool_search_output"] = "tool_search_output"

"""What the steps of a run tell each other and its listeners, while it is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trt_responses.frozen import dataclass as frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.dialect import Continuation
    from trt_responses.language.messages import FunctionTool
    from trt_responses.wire.response import Usage


@frozen(frozen=True, slots=True)
class ToolRun:
    """What is told of one call that the server ran, without its text."""

    tool: str
    failed: bool
    duration_ns: int
    answer_bytes: int
    began_ns: int = 0


@dataclass(slots=True)
class Notes:
    """The notes of one run."""

    continuation: Continuation | None = None
    """What goes on behind the prompt; None behind ids that the client has rendered."""
    offered: Sequence[FunctionTool] = ()
    """The functions that the model sees."""
    tool_runs: list[ToolRun] = field(default_factory=list)
    tool_ms: list[int] = field(default_factory=list)
    """Milliseconds that each answer of a tool took, in their order."""
    answered_first: int = 0
    """The number of calls whose answers stand before the first turn."""
    usage_first: Usage | None = None
    """The tokens of what was made before the answer."""

"""An answer before which its conversation is made short, in the same log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trt_responses.features.compaction.usage import usage_of_both
from trt_responses.run.generation import Generation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.log.fold import Output
    from trt_responses.run.ending import End
    from trt_responses.wire.response import Usage


class CompactedFirst(Generation):
    """Has a summary made before its first turn. Verdicts and pauses reach that too."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._aside: Generation | None = None
        self._used_first: Usage | None = None

    async def make_first(self, other: Generation) -> End:
        """Make something in the same log before the first turn."""
        self.requested_ns, self._aside = self._clock_ns(), other
        try:
            return await other.end()
        finally:
            self._used_first = other.usage(())
            self.abort()
            self._aside = None

    def begin_from(self, prompt_ids: Sequence[int]) -> None:
        """Have the answer go on from another prompt than the one that was planned."""
        self.prompt_ids = self.base = prompt_ids
        self.prompt_tokens = len(prompt_ids)

    def decide(self, end: End) -> bool:
        if not super().decide(end):
            return False
        if self._aside is not None:
            self._aside.decide(end)
        return True

    def pause(self) -> bool:
        return (self._aside is not None and self._aside.pause()) or super().pause()

    def abort(self) -> None:
        if self._aside is not None:
            self._aside.abort()
        super().abort()

    def usage(self, output: Output) -> Usage:
        first = self._used_first
        if first is not None and not self.cached_tokens:  # there was no answer
            return first
        used = super().usage(output)
        return used if first is None else usage_of_both(first, used)

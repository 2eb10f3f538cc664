"""How much one request may hold, by the operator's choice. Its bytes are counted before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest
from trt_responses.frozen import dataclass
from trt_responses.wire.tools import flat

if TYPE_CHECKING:
    from trt_responses.wire.request import Request


@dataclass(frozen=True, slots=True)
class Bounds:
    tools: int = 1024
    items: int = 20_000
    metadata: int = 16

    def check(self, request: Request) -> None:
        self._check("tools", len(list(flat(request.tools or ()))), self.tools)
        self._check("tools", len(request.tools or ()), self.tools)
        if not isinstance(request.input, str):
            self._check("input", len(request.input), self.items)
        self._check("metadata", len(request.metadata or {}), self.metadata)

    def _check(self, name: str, count: int, at_most: int) -> None:
        if count > at_most:
            raise InvalidRequest(
                f"Invalid value for '{name}': {at_most} entries at most, got {count} "
                f"(TRT_RESPONSES_MAX_{name.upper()}).",
                param=name,
                code="too_many_entries",
            )

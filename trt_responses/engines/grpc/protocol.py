"""The protocols of gRPC engines, and their reasons of failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from trt_responses.engine import GenerateOptions, Limits
from trt_responses.engines.id_events import ModelIds, Part
from trt_responses.errors import ApiError, EngineUnavailable, InvalidRequest, Unsupported


class Fault(NamedTuple):
    """A failed call: the name of gRPC's status, and its message."""

    status: str
    message: str

    @property
    def refusal(self) -> ApiError | None:
        """The error for a request that the engine refused; None if the engine failed."""
        match self.status:
            case "INVALID_ARGUMENT" | "OUT_OF_RANGE":
                return InvalidRequest(f"The engine refused the request: {self.message}")
            case "UNIMPLEMENTED":
                return Unsupported(f"The engine refused the request: {self.message}")
            case "RESOURCE_EXHAUSTED":
                return EngineUnavailable(f"The engine is full: {self.message}", retry_after_s=1)
        return None

    def __str__(self) -> str:
        return f"{self.message} ({self.status})" if self.message else self.status


def fault_of(error: Any) -> Fault:
    """The fault of a gRPC error."""
    return Fault(error.code().name, error.details() or "")


class IdProtocol(Protocol):
    """A protocol over one channel. Calls raise gRPC's errors."""

    ids: ModelIds
    """The ids that end a request, and its guide."""

    generate: Any
    """The call that streams the messages of a request."""

    async def describe(self, timeout_s: float) -> Limits:
        """The limits that the server reports. Raises a `StartupError` for an unsupported one."""
        ...

    async def trouble(self, timeout_s: float) -> str | None:
        """Why the engine accepts no requests; None if it does."""
        ...

    def request(
        self, request_id: str, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Any:
        """The message of a request for at most `left` ids."""
        ...

    async def abort(self, request_id: str, timeout_s: float) -> bool:
        """Abort a request on the engine. Returns whether its stream ends for certain."""
        ...

    def read(self, message: Any, seen: int, options: GenerateOptions) -> Part:
        """The new part in a message, for a request that has read `seen` ids."""
        ...

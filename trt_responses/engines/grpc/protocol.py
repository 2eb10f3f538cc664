"""What a call over gRPC says: the new ids of a request, or why it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from trt_responses.errors import EngineUnavailable, InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.engine import Finish, Logprob
    from trt_responses.errors import ApiError


class Fault(NamedTuple):
    """Why a call failed: the name of gRPC's status, and what was said."""

    status: str
    message: str

    @property
    def refusal(self) -> ApiError | None:
        """The error of a request that the engine does not take; None where the engine failed."""
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


class Trouble(NamedTuple):
    """Why an engine takes no requests, and the status of the call if it failed."""

    reason: str
    status: str = ""


def fault_of(error: Any) -> Fault:
    """The fault that gRPC's error tells."""
    return Fault(error.code().name, error.details() or "")


class Part(NamedTuple):
    """What one message says of a request: new ids, and how it ended if it did."""

    token_ids: Sequence[int] = ()
    logprobs: Sequence[Logprob] = ()
    cached_tokens: int | None = None
    end: Finish | str | None = None
    """The last message's word for how it ended: `stop`, `length`, or a failure's."""
    stop_id: int | None = None

"""What the two protocols have in common: what an engine asks of one, and what it hears."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trt_responses.errors import EngineUnavailable, InvalidRequest, Unsupported
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trt_responses.engine.base import Finish, GenerateOptions, GuideKind, Limits, Logprob
    from trt_responses.errors import ApiError

END_ID = CONTROL.return_
"""The id that ends what a guide has guided."""
MAX_LOGPROBS = 20
UNLIKELY = -9999.0
"""The log probability that is told for an id so unlikely that none was given."""
UNKNOWN_BATCH = 2048
"""The requests at once of an engine that does not say it: what `trtllm-serve` takes if it is told
nothing."""


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
    fault: Fault | None = None


class EngineProtocol(Protocol):
    """One protocol over one channel. Its calls raise gRPC's own errors."""

    name: str
    generate: Any
    """The call that streams the messages of a request."""

    async def describe(self, timeout_s: float) -> Limits:
        """What the engine can take, as far as the protocol tells; its guides and what it ignores
        are found out later. Raises a `StartupError` for an engine that cannot be served."""
        ...

    async def trouble(self, timeout_s: float) -> str | None:
        """Why the engine takes no requests; None if it does."""
        ...

    def request(
        self, request_id: str, prompt_ids: Sequence[int], options: GenerateOptions, left: int
    ) -> Any:
        """The message that asks for at most `left` ids."""
        ...

    def metadata(self, options: GenerateOptions) -> tuple[tuple[str, str], ...]:
        """What stands beside that message."""
        ...

    async def abort(self, request_id: str, timeout_s: float) -> bool | None:
        """Have the engine end a request, and say whether it knew it; its stream then ends by
        itself. None where a request ends with its call."""
        ...

    def read(self, message: Any, seen: int, options: GenerateOptions) -> Part:
        """What a message says to a request that has seen so many ids."""
        ...


def sampling_of(options: GenerateOptions) -> Mapping[str, float | int]:
    """Everything that samples, by the names that both protocols have for it."""
    sampling: dict[str, float | int] = {
        "temperature": max(options.temperature, 0.0),
        "top_p": options.top_p,
        "top_k": options.top_k,
    }
    if options.temperature <= 0:
        sampling |= {"top_p": 1.0, "top_k": 1}
    elif options.min_p:
        sampling["min_p"] = options.min_p
    if options.presence_penalty:
        sampling["presence_penalty"] = options.presence_penalty
    if options.frequency_penalty:
        sampling["frequency_penalty"] = options.frequency_penalty
    if options.seed is not None:
        sampling["seed"] = options.seed % (1 << 64)
    return sampling


def stops_of(options: GenerateOptions) -> tuple[int, ...]:
    """The ids that stop a request. What a guide has guided ends with its own."""
    ends = () if options.guide is None else (END_ID,)
    return tuple(dict.fromkeys((*options.stop_ids, *ends)))


def guide_ends(kinds: Sequence[GuideKind]) -> dict[GuideKind, frozenset[int]]:
    """These kinds of guides, each with the ids that may end one."""
    return dict.fromkeys(kinds, frozenset({END_ID}))

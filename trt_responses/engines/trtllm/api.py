"""All names of `tensorrt_llm` that the adapter uses.

It imports nothing of the package. A test compares every name here with the contract.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict


class SamplingArguments(TypedDict, total=False):
    """Keywords of `SamplingParams`."""

    end_id: int
    max_tokens: int
    stop_token_ids: list[int]
    include_stop_str_in_output: bool
    detokenize: bool
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    logprobs: int
    bad_token_ids: list[int]
    guided_decoding: object
    return_perf_metrics: bool


class GuideArguments(TypedDict, total=False):
    """Keywords of `GuidedDecodingParams`; at most one."""

    json: str
    regex: str
    grammar: str


class SchedulingArguments(TypedDict, total=False):
    """Keywords of `SchedulingParams`."""

    attention_dp_rank: int
    attention_dp_relax: bool


class CallArguments(TypedDict, total=False):
    """Keywords of `LLM.generate_async`, without its inputs."""

    sampling_params: object
    streaming: bool
    trace_headers: Mapping[str, str]
    cache_salt: str
    scheduling_params: object
    lora_request: object
    kv_cache_retention_config: object
    priority: float


class RetentionConfig(Protocol):
    """The class of what says how long a request's blocks stay in the cache."""

    TokenRangeRetentionConfig: Callable[..., object]

    def __call__(
        self,
        *,
        token_range_retention_configs: Sequence[object],
        decode_retention_priority: int,
        decode_duration_ms: object,
    ) -> object: ...


class LoraArguments(TypedDict):
    """Keywords of `LoRARequest`."""

    lora_name: str
    lora_int_id: int
    lora_path: str


class Logprob(Protocol):
    """A token's log probability."""

    @property
    def logprob(self) -> float: ...


class CompletionOutput(Protocol):
    """One answer of a request. It is cumulative: the same object at every step."""

    @property
    def token_ids(self) -> Sequence[int]: ...
    @property
    def logprobs(self) -> Sequence[Mapping[int, Logprob] | float] | None: ...
    @property
    def finish_reason(self) -> str | None: ...
    @property
    def stop_reason(self) -> int | str | None: ...


class RequestOutput(Protocol):
    """One request's result, with its outputs."""

    @property
    def outputs(self) -> Sequence[CompletionOutput]: ...
    @property
    def finished(self) -> bool: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def metrics_dict(self) -> Mapping[object, float | str] | None: ...
    def abort(self) -> None: ...
    def __aiter__(self) -> AsyncIterator[RequestOutput]: ...


class LLM(Protocol):
    """The part of the package's `LLM` that the adapter calls."""

    def generate_async(self, inputs: list[int], **words: object) -> RequestOutput: ...
    def get_stats_async(self, timeout: float) -> AsyncIterator[Mapping[str, object]]: ...
    def shutdown(self) -> None: ...


class ArgumentField(Protocol):
    """The part of a pydantic field that the adapter reads."""

    @property
    def annotation(self) -> object: ...


@dataclass(frozen=True, slots=True)
class Package:
    """An installed version of the package, or a test's stand-in."""

    version: str
    llm: Callable[..., LLM]
    sampling_params: Callable[..., object]
    guided_decoding_params: Callable[..., object]
    scheduling_params: Callable[..., object]
    argument_fields: Mapping[str, ArgumentField]
    """The fields of `TorchLlmArgs`, which validates all arguments that `LLM` does not name
    itself."""
    lora_request: Callable[..., object] | None = None
    """The class `LoRARequest`, if the version has it."""
    retention_config: RetentionConfig | None = None
    """The class `KvCacheRetentionConfig`, if the version has it."""


FATAL = frozenset({"CppExecutorError", "EngineDeadError"})
"""Error classes after which the engine answers no request."""
REFUSED = "RequestError"
"""The error class of a single request's fault; others continue."""


def names_of(error: BaseException) -> frozenset[str]:
    """The names of an error's class and bases: modules change between versions, names do not."""
    return frozenset(kind.__name__ for kind in type(error).__mro__)

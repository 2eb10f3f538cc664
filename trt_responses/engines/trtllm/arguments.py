"""The arguments of TensorRT-LLM's calls: start, request and sampling.

Arguments that the installed version does not support are left out. Keywords and their pitfalls
only: it starts nothing and reads no results.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, get_args

from trt_responses.engine import GenerateOptions, Guide, GuideKind, Limits
from trt_responses.engines.ask import PROBE_IDS
from trt_responses.engines.trtllm.api import (
    ArgumentField,
    CallArguments,
    GuideArguments,
    LoraArguments,
    Package,
    SamplingArguments,
    SchedulingArguments,
)
from trt_responses.errors import StartupError
from trt_responses.tokens.control import CONTROL, FIRST_PADDING_ID

logger = logging.getLogger(__name__)

MAX_LOGPROBS = 20
GUIDES: tuple[GuideKind, ...] = ("json_schema", "regex")
"""The kinds of guides that every backend supports."""
LLGUIDANCE = "llguidance"
OTHER_BACKEND = "xgrammar"
"""The guide backend to try if llguidance fails."""
SILENCE = {"TRTLLM_NO_USAGE_STATS": "1", "TELEMETRY_DISABLED": "true", "DO_NOT_TRACK": "1"}
"""Variables that switch usage reports off. Newer versions would send reports; older ones ignore the
variables."""


BANNED_IN_GUIDES = tuple(token_id for token_id in CONTROL if token_id != CONTROL.return_)


class Marks(NamedTuple):
    """A model's special ids for the adapter; the defaults are gpt-oss's."""

    end_id: int = CONTROL.return_
    """The default end id of a request, and of each guide: the tokenizer's own."""
    probe: tuple[int, ...] = PROBE_IDS
    """The shortest prompt."""
    banned_in_guides: tuple[int, ...] = BANNED_IN_GUIDES
    """Ids to ban under a grammar, where a control id could pass as its spelling in a string."""
    first_padding_id: int | None = FIRST_PADDING_ID
    """The first padding id of the embedding, or None if unknown; padding ids are never
    generated."""


HARMONY = Marks()


def marks_of(end_id: int | None) -> Marks:
    """The special ids of a model with this end id; None: gpt-oss. Plans of other models ban the
    control ids in guides themselves."""
    return HARMONY if end_id is None else Marks(end_id, (end_id,), (), None)


class SupportedArguments:
    """The arguments that the installed version supports. Each unsupported keyword is logged
    once."""

    def __init__(self, package: Package) -> None:
        self._version = package.version
        self._fields = package.argument_fields
        self._sampling = _parameters(package.sampling_params)
        self._llm = _parameters(package.llm) | set(package.argument_fields)
        self._call: frozenset[str] = frozenset()
        self._logged: set[str] = set()

    def learn_call(self, generate_async: object) -> None:
        """Note the parameters of this version's `generate_async`."""
        self._call = _parameters(generate_async)

    def sampling(self, given: SamplingArguments) -> dict[str, object]:
        """The supported arguments of `SamplingParams`."""
        return self._supported("SamplingParams", dict(given), self._sampling)

    def call(self, given: CallArguments) -> dict[str, object]:
        """The supported arguments of `generate_async`."""
        return self._supported("generate_async", dict(given), self._call)

    def takes_argument(self, name: str) -> bool:
        return name in self._llm

    def arguments(self, given: Mapping[str, object]) -> dict[str, object]:
        """The supported arguments of `LLM`, and of its nested configurations."""
        kept = self._supported("LLM", given, self._llm)
        for name, value in kept.items():
            known = _nested_fields(self._fields.get(name))
            if isinstance(value, dict) and known:
                kept[name] = self._supported(f"LLM, {name}", value, known)
        return kept

    def _supported(
        self, where: str, given: Mapping[str, object], known: frozenset[str] | set[str]
    ) -> dict[str, object]:
        for name in given.keys() - known:
            if (dropped := f"{where}({name})") not in self._logged:
                self._logged.add(dropped)
                logger.warning(
                    "ignoring %s: unsupported by tensorrt_llm %s", dropped, self._version
                )
        return {name: value for name, value in given.items() if name in known}


def llm_arguments(
    checkpoint: Path, arguments: Mapping[str, object], supported: SupportedArguments
) -> dict[str, object]:
    """The arguments of `LLM`: the engine's, and those that the adapter requires."""
    merged: dict[str, object] = {
        "enable_iter_perf_stats": True,
        **arguments,
        "model": str(checkpoint),
        # Guides need the package's tokenizer; without guides the adapter uses ids only.
        "skip_tokenizer_init": arguments.get("guided_decoding_backend") is None,
        # Post-processing workers would return other output objects.
        "num_postprocess_workers": 0,
    }
    if supported.takes_argument("telemetry_config"):
        merged["telemetry_config"] = {"disabled": True}
    return supported.arguments(merged)


def engine_limits(
    arguments: Mapping[str, object],
    end_id: int = HARMONY.end_id,
    adapters: Iterable[str] = (),
) -> Limits:
    """The limits of an engine with these arguments: context, batch, guides and adapters."""
    backend = arguments.get("guided_decoding_backend")
    kinds = get_args(GuideKind) if backend == LLGUIDANCE else () if backend is None else GUIDES
    return Limits(
        number(arguments, "max_seq_len"),
        number(arguments, "max_batch_size") * attention_ranks(arguments),
        dict.fromkeys(kinds, frozenset({end_id})),
        MAX_LOGPROBS,
        longest_prompt(arguments),
        adapters=tuple(adapters),
        extras=frozenset({"repetition_penalty"}),
    )


def attention_ranks(arguments: Mapping[str, object]) -> int:
    """The number of attention data-parallel ranks, each with its own batch."""
    if not arguments.get("enable_attention_dp"):
        return 1
    return number({"tensor_parallel_size": 1, **arguments}, "tensor_parallel_size")


def longest_prompt(arguments: Mapping[str, object]) -> int:
    """The longest prompt in ids: without chunked prefill a prompt must fit into one step."""
    chunked = bool(arguments.get("enable_chunked_prefill"))
    return number(arguments, "max_seq_len" if chunked else "max_num_tokens")


def number(arguments: Mapping[str, object], name: str) -> int:
    """A positive integer argument."""
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise StartupError(f"Argument {name}: expected an integer above 0, got {value!r}.")
    return value


def sampling_arguments(
    options: GenerateOptions,
    left: int,
    package: Package,
    *,
    bans: bool,
    marks: Marks = HARMONY,
) -> SamplingArguments:
    """The arguments of `SamplingParams`, all explicit: the package's defaults are greedy sampling
    and 32 ids. `bans`: whether the engine supports banned ids.

    An explicit end id disables the package's own stop ids, so all are listed. A matched stop id is
    cut from the output unless it is included explicitly.
    """
    sampling: SamplingArguments = {
        "end_id": marks.end_id,
        "max_tokens": left,
        "stop_token_ids": [token_id for token_id in options.stop_ids if token_id != marks.end_id],
        "include_stop_str_in_output": True,
        "detokenize": False,
        "temperature": max(options.temperature, 0.0),
        "top_p": options.top_p,
        "top_k": options.top_k,
    }
    if options.temperature <= 0:
        sampling["top_p"], sampling["top_k"] = 1.0, 1
    elif options.min_p:
        sampling["min_p"] = options.min_p
    if options.presence_penalty:
        sampling["presence_penalty"] = options.presence_penalty
    if options.frequency_penalty:
        sampling["frequency_penalty"] = options.frequency_penalty
    if options.repetition_penalty != 1:
        sampling["repetition_penalty"] = options.repetition_penalty
    if options.seed is not None:
        sampling["seed"] = options.seed
    if options.logprobs is not None:
        sampling["logprobs"] = max(1, options.logprobs)
    if bans and (banned := _banned(options, marks)):
        sampling["bad_token_ids"] = list(banned)
    if options.guide is not None:
        sampling["guided_decoding"] = package.guided_decoding_params(
            **guide_arguments(options.guide)
        )
    if options.metrics:
        sampling["return_perf_metrics"] = True
    return sampling


def _banned(options: GenerateOptions, marks: Marks) -> tuple[int, ...]:
    """The ids to ban, without padding ids: each ban costs time at every step."""
    if options.guide is None:
        return tuple(dict.fromkeys(options.banned_ids))
    banned = tuple(dict.fromkeys((*marks.banned_in_guides, *options.banned_ids)))
    most = marks.first_padding_id
    return banned if most is None else tuple(token_id for token_id in banned if token_id < most)


def guide_arguments(guide: Guide) -> GuideArguments:
    """The arguments of `GuidedDecodingParams` for a guide."""
    match guide.kind:
        case "json_schema":
            return {"json": guide.source}
        case "regex":
            return {"regex": guide.source}
        case "lark":
            return {"grammar": guide.source}


def call_arguments(
    options: GenerateOptions,
    sampling_params: object,
    scheduling_params: object | None,
    lora_request: object | None,
    retention: object | None = None,
) -> CallArguments:
    """The arguments of `generate_async`."""
    call: CallArguments = {
        "sampling_params": sampling_params,
        "streaming": True,
        "priority": options.priority,
    }
    if (salt := options.salt) is not None:
        call["cache_salt"] = salt
    if lora_request is not None:
        call["lora_request"] = lora_request
    if retention is not None:
        call["kv_cache_retention_config"] = retention
    if scheduling_params is not None:
        call["scheduling_params"] = scheduling_params
    if options.trace_headers:
        call["trace_headers"] = dict(options.trace_headers)
    return call


def scheduling_arguments(rank: int) -> SchedulingArguments:
    """The arguments of `SchedulingParams`. The rank is a preference: a full rank passes the request
    to another one."""
    return {"attention_dp_rank": rank, "attention_dp_relax": True}


def lora_requests(adapters: Mapping[str, Path], package: Package) -> dict[str, object]:
    """A `LoRARequest` for each adapter by name. The package identifies adapters by number, so the
    numbers are unique."""
    if not adapters:
        return {}
    if package.lora_request is None:
        raise StartupError(
            f"tensorrt_llm {package.version} does not support adapters (no LoRARequest): remove "
            "this engine's adapters, or install a version that supports them."
        )
    requests: dict[str, object] = {}
    for number, (name, path) in enumerate(adapters.items(), 1):
        given: LoraArguments = {
            "lora_name": name,
            "lora_int_id": number,
            "lora_path": str(path),
        }
        requests[name] = package.lora_request(**given)
    return requests


def _parameters(called: object) -> frozenset[str]:
    assert callable(called)
    parameters = inspect.signature(called).parameters.values()
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return frozenset(p.name for p in parameters if p.kind not in variable)


def _nested_fields(field: ArgumentField | None) -> frozenset[str]:
    """The field names of a field's configuration class, if it can be only one class; else empty."""
    seen = [] if field is None else [field.annotation]
    candidates: list[frozenset[str]] = []
    for annotation in seen:  # grows: a class may be inside Optional and Annotated
        if fields := getattr(annotation, "model_fields", None):
            candidates.append(frozenset(fields))
        else:
            seen.extend(get_args(annotation))
    return candidates[0] if len(candidates) == 1 else frozenset()

"""The arguments of TensorRT-LLM's calls: of its start, of a request, of a request's sampling.

Those that the installed version does not take are left out. Knows keywords and their traps;
starts nothing and follows no request.
"""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, NamedTuple, get_args

from trt_responses.engine import GuideKind, Limits
from trt_responses.engines.ask import PROBE_IDS
from trt_responses.errors import StartupError
from trt_responses.tokens.control import CONTROL, FIRST_PADDING_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from trt_responses.engine import GenerateOptions, Guide
    from trt_responses.engines.trtllm.api import (
        ArgumentField,
        CallArguments,
        GuideArguments,
        LoraArguments,
        Package,
        SamplingArguments,
        SchedulingArguments,
    )

logger = logging.getLogger(__name__)

MAX_LOGPROBS = 20
GUIDES: tuple[GuideKind, ...] = ("json_schema", "regex")
"""The kinds of guides that every library has."""
LLGUIDANCE = "llguidance"
OTHER_BACKEND = "xgrammar"
"""The library that guides where llguidance does not."""
SILENCE = {"TRTLLM_NO_USAGE_STATS": "1", "TELEMETRY_DISABLED": "true", "DO_NOT_TRACK": "1"}
"""Variables that switch usage reports off. Newer versions send them otherwise; older ones ignore
the variables."""


BANNED_IN_GUIDES = tuple(token_id for token_id in CONTROL if token_id != CONTROL.return_)


class Marks(NamedTuple):
    """The ids of a model that mean something to the adapter; the defaults are gpt-oss's."""

    end_id: int = CONTROL.return_
    """The end of a request that asks for no other, and of each guide: the tokenizer's own."""
    probe: tuple[int, ...] = PROBE_IDS
    """The shortest prompt."""
    banned_in_guides: tuple[int, ...] = BANNED_IN_GUIDES
    """Under a grammar a control id may pass for its spelling in a string."""
    first_padding_id: int | None = FIRST_PADDING_ID
    """The ids that pad the matrix are never made; None where it is not known which."""


HARMONY = Marks()


def marks_of(end_id: int | None) -> Marks:
    """The ids of a model with this end; None: of a gpt-oss. The plans of other models ban by
    themselves what may not stand in a guide."""
    return HARMONY if end_id is None else Marks(end_id, (end_id,), (), None)


class SupportedArguments:
    """The arguments that an installed version takes. Each keyword that it does not take is logged
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
        """The arguments of `SamplingParams` that this version takes."""
        return self._kept("SamplingParams", dict(given), self._sampling)

    def call(self, given: CallArguments) -> dict[str, object]:
        """The arguments of `generate_async` that this version takes."""
        return self._kept("generate_async", dict(given), self._call)

    def takes_argument(self, name: str) -> bool:
        return name in self._llm

    def arguments(self, given: Mapping[str, object]) -> dict[str, object]:
        """The arguments of `LLM` that this version takes, and those of its nested
        configurations."""
        kept = self._kept("LLM", given, self._llm)
        for name, value in kept.items():
            known = _nested_fields(self._fields.get(name))
            if isinstance(value, dict) and known:
                kept[name] = self._kept(f"LLM, {name}", value, known)
        return kept

    def _kept(
        self, where: str, given: Mapping[str, object], known: frozenset[str] | set[str]
    ) -> dict[str, object]:
        for name in given.keys() - known:
            if (dropped := f"{where}({name})") not in self._logged:
                self._logged.add(dropped)
                logger.warning("tensorrt_llm %s does not take %s.", self._version, dropped)
        return {name: value for name, value in given.items() if name in known}


def llm_arguments(
    checkpoint: Path, arguments: Mapping[str, object], supported: SupportedArguments
) -> dict[str, object]:
    """The arguments of `LLM`: those of the engine, and those that the adapter depends on."""
    merged: dict[str, object] = {
        "enable_iter_perf_stats": True,
        **arguments,
        "model": str(checkpoint),
        # A guide needs the package's tokenizer; without guides ids are all there is.
        "skip_tokenizer_init": arguments.get("guided_decoding_backend") is None,
        # Post-processing workers would replace the outputs by objects of their own.
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
    """What an engine with these arguments can take: its context, its batch, its guides; and the
    names of its adapters."""
    backend = arguments.get("guided_decoding_backend")
    kinds = get_args(GuideKind) if backend == LLGUIDANCE else () if backend is None else GUIDES
    return Limits(
        number(arguments, "max_seq_len"),
        number(arguments, "max_batch_size") * attention_ranks(arguments),
        dict.fromkeys(kinds, frozenset({end_id})),
        MAX_LOGPROBS,
        longest_prompt(arguments),
        adapters=tuple(adapters),
    )


def attention_ranks(arguments: Mapping[str, object]) -> int:
    """How many GPUs keep the attention of requests of their own, each in a batch of its own."""
    if not arguments.get("enable_attention_dp"):
        return 1
    return number({"tensor_parallel_size": 1, **arguments}, "tensor_parallel_size")


def longest_prompt(arguments: Mapping[str, object]) -> int:
    """The longest prompt in ids: without chunked prefill a prompt must fit into one step."""
    chunked = bool(arguments.get("enable_chunked_prefill"))
    return number(arguments, "max_seq_len" if chunked else "max_num_tokens")


def number(arguments: Mapping[str, object], name: str) -> int:
    """A whole number among the arguments."""
    value = arguments.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise StartupError(f"Argument {name}: expected a whole number above 0, got {value!r}.")
    return value


def sampling_arguments(
    options: GenerateOptions,
    left: int,
    package: Package,
    *,
    bans: bool,
    marks: Marks = HARMONY,
) -> SamplingArguments:
    """Everything that samples is said: without it the package is greedy and stops at 32 ids. Bans
    are left out where the engine takes none.

    An end id given here switches off the package's own set-up of stop ids, so all are named. A
    matched stop id is cut from the output unless it is asked to stay.
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
    """The ids to ban. Each is walked at every step, so none that is never made."""
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
    if scheduling_params is not None:
        call["scheduling_params"] = scheduling_params
    if options.trace_headers:
        call["trace_headers"] = dict(options.trace_headers)
    return call


def scheduling_arguments(rank: int) -> SchedulingArguments:
    """The arguments of `SchedulingParams`. The rank is a preference: a full rank leaves the request
    to another."""
    return {"attention_dp_rank": rank, "attention_dp_relax": True}


def lora_requests(adapters: Mapping[str, Path], package: Package) -> dict[str, object]:
    """A `LoRARequest` for each adapter, by its name. The package knows an adapter by its number, so
    that none of two may have the same."""
    if not adapters:
        return {}
    if package.lora_request is None:
        raise StartupError(
            f"tensorrt_llm {package.version} has no LoRARequest, and this engine has adapters: "
            "remove them, or install a version that has it."
        )
    made: dict[str, object] = {}
    for number, (name, path) in enumerate(adapters.items(), 1):
        given: LoraArguments = {
            "lora_name": name,
            "lora_int_id": number,
            "lora_path": str(path),
        }
        made[name] = package.lora_request(**given)
    return made


def _parameters(called: object) -> frozenset[str]:
    assert callable(called)
    found = inspect.signature(called).parameters.values()
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return frozenset(p.name for p in found if p.kind not in variable)


def _nested_fields(field: ArgumentField | None) -> frozenset[str]:
    """The field names of the configuration class that a field holds, if it can hold one alone: of
    several, only the package knows which is meant."""
    seen = [] if field is None else [field.annotation]
    found: list[frozenset[str]] = []
    for annotation in seen:  # grows: a class may stand inside Optional and Annotated
        if fields := getattr(annotation, "model_fields", None):
            found.append(frozenset(fields))
        else:
            seen.extend(get_args(annotation))
    return found[0] if len(found) == 1 else frozenset()

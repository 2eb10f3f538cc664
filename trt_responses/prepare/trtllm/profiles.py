"""Profiles of TensorRT-LLM for gpt-oss on each class of GPU, as data, and the arguments from them.
docs/tensorrt-llm.md has the sources of the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping  # read by dataclasses
from dataclasses import field
from typing import Literal, get_args

from trt_responses.frozen import dataclass
from trt_responses.prepare.faults import PrepareError, refusal

ProfileName = Literal["latency", "balanced", "throughput"]
PROFILES: tuple[ProfileName, ...] = get_args(ProfileName)

Arguments = dict[str, object]


@dataclass(frozen=True, slots=True)
class GpuClass:
    """A class of GPUs with the same support in TensorRT-LLM, and its kernels for the experts."""

    name: str
    sms: tuple[int, ...]
    moe_backend: Literal["TRITON", "TRTLLM", "CUTLASS"]
    splits_experts_only: bool = False
    """Whether the kernels distribute whole experts over GPUs, and cannot split one."""
    kv_dtype: str = "auto"
    """The type of the throughput profile's cache."""
    variables: Mapping[str, str] = field(default_factory=dict)


CLASSES = (
    GpuClass("hopper", (90,), "TRITON", splits_experts_only=True),
    GpuClass(
        "blackwell", (100, 103), "TRTLLM", kv_dtype="fp8", variables={"TRTLLM_ENABLE_PDL": "1"}
    ),
    GpuClass("blackwell-workstation", (120, 121), "CUTLASS"),
)
OLDEST_SM = 90
"""The oldest compute capability: attention sinks and the expert kernels have no documented support
on older GPUs."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The choices of one profile."""

    max_batch_size: int
    max_num_tokens: int
    stream_interval: int
    spreads_experts: bool
    """Whether the experts are spread over all GPUs; else each expert is split."""
    attention_dp: bool = False
    """Whether each GPU computes the attention of its own requests: for many requests on several
    GPUs."""
    quick_cache: bool = False
    """Whether the cache has the class's narrow type."""


TABLE: Mapping[ProfileName, Profile] = {
    "latency": Profile(64, 16_384, 1, spreads_experts=False),
    "balanced": Profile(256, 16_384, 5, spreads_experts=True),
    "throughput": Profile(
        720, 16_384, 20, spreads_experts=True, attention_dp=True, quick_cache=True
    ),
}
KV_FRACTION = 0.9
ATTENTION_DP = {"enable_balance": True, "batching_wait_iters": 50, "timeout_iters": 1}
GUIDES = "llguidance"
"""The library for guides, the same as for the other engines; xgrammar ignores bounds of numbers."""


DRAFT_CLASS, DRAFT_PROFILE = "blackwell", "latency"
DRAFT_BATCH = 10
DRAFT_KV_FRACTION = 0.8
DRAFT_TOKENS = 3
DRAFTED = (36, 128)
"""The layers and experts of gpt-oss-120b. NVIDIA publishes an Eagle3 draft and a guide for that
model on GB200 and B200 only."""


def class_of(sm: int) -> GpuClass:
    """The class of a compute capability."""
    for found in CLASSES:
        if sm in found.sms:
            return found
    if sm < OLDEST_SM:
        raise PrepareError(
            f"GPU: found compute capability {sm / 10:.1f}, expected {OLDEST_SM / 10:.1f} (Hopper) "
            "or newer; TensorRT-LLM has no documented support for gpt-oss on older GPUs."
        )
    known = ", ".join(str(sm / 10) for found in CLASSES for sm in found.sms)
    raise refusal("GPU, compute capability", sm / 10, f"one of {known}")


def class_named(name: str) -> GpuClass:
    """The class of this name."""
    for found in CLASSES:
        if found.name == name:
            return found
    raise refusal("GPU class", repr(name), " or ".join(found.name for found in CLASSES))


def arguments_for(
    profile: ProfileName, gpu_class: GpuClass, gpus: int, context_tokens: int
) -> Arguments:
    """The keywords of `LLM`, which are those of `trtllm-serve --config`."""
    chosen = TABLE[profile]
    spread = chosen.spreads_experts or gpu_class.splits_experts_only
    attention_dp = chosen.attention_dp and gpus > 1
    found: Arguments = {
        "tensor_parallel_size": gpus,
        "moe_expert_parallel_size": gpus if spread else 1,
        "pipeline_parallel_size": 1,
        "enable_attention_dp": attention_dp,
        "max_batch_size": chosen.max_batch_size,
        "max_num_tokens": chosen.max_num_tokens,
        "max_seq_len": context_tokens,
        "enable_chunked_prefill": True,
        "stream_interval": chosen.stream_interval,
        "num_postprocess_workers": 0,
        "guided_decoding_backend": GUIDES,
        "kv_cache_config": _cache(dtype=gpu_class.kv_dtype if chosen.quick_cache else "auto"),
        "cuda_graph_config": {"max_batch_size": chosen.max_batch_size, "enable_padding": True},
        "moe_config": {"backend": gpu_class.moe_backend},
    }
    if attention_dp:
        found["attention_dp_config"] = dict(ATTENTION_DP)
    return found


def _cache(
    share: float = KV_FRACTION, *, reuse: bool = True, dtype: str = "auto"
) -> dict[str, object]:
    """The arguments of the cache of contexts. `share`: of a GPU's free memory."""
    return {"enable_block_reuse": reuse, "free_gpu_memory_fraction": share, "dtype": dtype}


def of_another_model(arguments: Arguments) -> Arguments:
    """The arguments for a model other than gpt-oss: the same batches, contexts and graphs, and the
    package's defaults for kernels, the cache's type and the distribution of experts."""
    left = ("moe_config", "moe_expert_parallel_size", "attention_dp_config")
    kept = {name: value for name, value in arguments.items() if name not in left}
    return {**kept, "enable_attention_dp": False, "kv_cache_config": _cache()}


def with_draft(arguments: Arguments, draft: str) -> Arguments:
    """The arguments with an Eagle3 draft, by NVIDIA's guide for gpt-oss-120b: few requests at once,
    and no reuse of prefixes."""
    return {
        **arguments,
        "max_batch_size": DRAFT_BATCH,
        "cuda_graph_config": {"max_batch_size": DRAFT_BATCH, "enable_padding": True},
        "kv_cache_config": _cache(DRAFT_KV_FRACTION, reuse=False),
        "speculative_config": {
            "decoding_type": "Eagle",
            "max_draft_len": DRAFT_TOKENS,
            "speculative_model_dir": draft,
        },
    }


def parallel_fault(
    arguments: Mapping[str, object], experts: int, heads: int, kv_heads: int
) -> str | None:
    """The reason why this model cannot run with this parallelism, or None."""
    tensor = arguments.get("tensor_parallel_size")
    expert = arguments.get("moe_expert_parallel_size") or 1
    assert isinstance(tensor, int)
    assert isinstance(expert, int)
    split = not arguments.get("enable_attention_dp")
    claims = (
        (experts % expert == 0, f"{experts} experts cannot be distributed over {expert} GPUs"),
        (tensor % expert == 0, f"{tensor} GPUs are no multiple of {expert} for the experts"),
        (not split or heads % tensor == 0, f"{heads} heads cannot be split among {tensor} GPUs"),
        (
            not split or kv_heads % tensor == 0 or tensor % kv_heads == 0,
            f"{kv_heads} key-value heads cannot be split among {tensor} GPUs",
        ),
    )
    return next((sentence for holds, sentence in claims if not holds), None)


def graph_sizes(max_batch_size: int) -> list[int]:
    """The batch sizes of padded CUDA graphs that a warm-up runs."""
    powers = [1 << n for n in range(max_batch_size.bit_length()) if 1 << n < max_batch_size]
    return [*powers, max_batch_size]

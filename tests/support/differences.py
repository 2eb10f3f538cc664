"""An installed package against the contract: each name that the adapter rests on and that differs.

Used on the real package by the live tests, and on the stand-in by the ordinary ones.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from tests.support.double import contract as names
from trt_responses.engines.trtllm import api

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.support.double.contract import Version
    from trt_responses.engines.trtllm.api import Package

ESSENTIAL_ARGUMENTS = (
    *("model", "skip_tokenizer_init", "tensor_parallel_size", "num_postprocess_workers"),
    *("max_batch_size", "max_num_tokens", "max_seq_len", "enable_chunked_prefill"),
    *("guided_decoding_backend", "kv_cache_config", "cuda_graph_config", "moe_config"),
    *("moe_expert_parallel_size", "stream_interval"),
)


def differences(package: Package, generate_async: object, version: Version) -> list[str]:
    """What the adapter could trip over; empty when the package is as the contract says."""
    return [
        *_missing("LLM", ESSENTIAL_ARGUMENTS, package.argument_fields),
        *_missing(
            "SamplingParams",
            api.SamplingArguments.__annotations__,
            inspect.signature(package.sampling_params).parameters,
        ),
        *_missing(
            "GuidedDecodingParams",
            api.GuideArguments.__annotations__,
            inspect.signature(package.guided_decoding_params).parameters,
        ),
        *_call(generate_async, version),
    ]


def changes(package: Package, version: Version) -> list[str]:
    """Names that came or went since the contract was read: to report, not a failure."""
    known = {
        "LLM": (names.checked_arguments(version).keys(), package.argument_fields.keys()),
        "SamplingParams": (
            names.sampling_fields(version).keys(),
            inspect.signature(package.sampling_params).parameters.keys(),
        ),
    }
    return [
        f"{where}: {name} {'went' if name in expected else 'is new'}"
        for where, (expected, found) in known.items()
        for name in sorted(expected ^ found)
    ]


def _missing(where: str, wanted: Iterable[str], found: Iterable[str]) -> Iterator[str]:
    present = set(found)
    for name in wanted:
        if name not in present:
            yield f"{where}: no {name}"


def _call(generate_async: object, version: Version) -> Iterator[str]:
    assert callable(generate_async)
    expected = [name for name in names.call_parameters(version) if not name.startswith("_")]
    found = inspect.signature(generate_async).parameters
    yield from _missing("generate_async", expected, found)
    if next(iter(found), None) != "inputs":
        yield "generate_async: inputs is not its first parameter"
    if inspect.iscoroutinefunction(generate_async):
        yield "generate_async: it is a coroutine function"

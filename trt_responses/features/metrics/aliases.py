"""The same numbers under the names of TensorRT-LLM and vLLM, for dashboards and routers that ask
for those. A name stands here only where what it means there is what is counted here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trt_responses.features.metrics.families import Family, Labels, Shown


class Alias(NamedTuple):
    """One of the server's metrics under another name."""

    name: str
    of: str
    """The name of our metric."""
    names: Labels | None = None
    samples: Mapping[Labels, Labels] | None = None
    """The samples that are shown, and the values of the labels `names` for each; None: all as
    ours."""


REASON = ("finished_reason",)
LABELLESS: Labels = ()
SHARED = (
    Alias("num_requests_running", "responses_running"),
    Alias("num_requests_waiting", "responses_waiting"),
    Alias("prompt_tokens", "tokens", LABELLESS, {("prompt",): ()}),
    Alias("generation_tokens", "tokens", LABELLESS, {("generated",): ()}),
    Alias("time_to_first_token_seconds", "first_token_seconds"),
    Alias("e2e_request_latency_seconds", "response_seconds"),
    Alias("request_queue_time_seconds", "queue_seconds"),
    Alias("request_prefill_time_seconds", "prefill_seconds"),
    Alias("request_decode_time_seconds", "decode_seconds"),
    Alias("request_inference_time_seconds", "engine_seconds"),
)
STOPPED: Mapping[Labels, Labels] = {("completed",): ("stop",), ("incomplete",): ("length",)}
TRTLLM: tuple[Alias, ...] = (
    *SHARED,
    Alias("prompt_cached_tokens", "tokens", LABELLESS, {("cached",): ()}),
    Alias("time_per_output_token_seconds", "mean_inter_token_seconds"),
    Alias("kv_cache_utilization", "kv_cache_use_ratio"),
    Alias("kv_cache_hit_rate", "cached_tokens_ratio"),
    Alias("request_success", "responses", REASON, STOPPED),
    Alias("request_error", "responses", LABELLESS, {("failed",): ()}),
)
VLLM: tuple[Alias, ...] = (
    *SHARED,
    Alias("kv_cache_usage_perc", "kv_cache_use_ratio"),
    Alias("prefix_cache_queries", "tokens", LABELLESS, {("prompt",): ()}),
    Alias("prefix_cache_hits", "tokens", LABELLESS, {("cached",): ()}),
    Alias("inter_token_latency_seconds", "inter_token_seconds"),
    Alias("request_time_per_output_token_seconds", "mean_inter_token_seconds"),
    Alias("request_success", "responses", REASON, {**STOPPED, ("cancelled",): ("abort",)}),
)


def aliases(families: Mapping[str, Family], model: str, engine: str) -> list[Shown]:
    """The other names of these families; a missing family has none."""
    servers = (
        ("trtllm_", TRTLLM, {"model_name": model, "engine_type": engine}),
        ("vllm:", VLLM, {"model_name": model, "engine": "0"}),
    )
    return [
        Shown(
            prefix + alias.name,
            f"As trt_responses_{alias.of}.",
            families[alias.of],
            fixed=fixed,
            renamed=alias.samples,
            names=alias.names,
        )
        for prefix, table, fixed in servers
        for alias in table
        if alias.of in families
    ]

"""The tensors and parameters of requests and answers on Triton.

The engine and the exported model that Triton runs share this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from trt_responses.engine import Chunk, GenerateOptions, Guide, Limits, Logprob

INPUTS = {"input_ids": "TYPE_INT32", "stop_ids": "TYPE_INT32", "banned_ids": "TYPE_INT32"}
"""The tensors of a request: rows of ids; all but the first are optional."""
OUTPUTS = {
    "output_ids": "TYPE_INT32",
    "logprobs": "TYPE_STRING",
    "cached_tokens": "TYPE_INT32",
    "finish_reason": "TYPE_STRING",
    "stop_id": "TYPE_INT32",
    "limits": "TYPE_STRING",
}
"""The tensors of an event. `logprobs` and `limits` are JSON."""
NUMBERS = (
    *("max_tokens", "temperature", "top_p", "top_k", "min_p"),
    *("presence_penalty", "frequency_penalty", "seed", "logprobs", "priority"),
)
TEXTS = ("cache_salt", "request_id")
LOST = "The engine is lost: "
"""The prefix of the error of a request that may resume because its engine was lost."""
DESCRIBE = "describe"
"""The parameter for the engine's limits instead of an answer."""


def body_of(prompt_ids: Sequence[int], options: GenerateOptions) -> bytes:
    """The body of a `generate_stream` request."""
    named = {name: getattr(options, name) for name in (*NUMBERS, *TEXTS)}
    parameters: dict[str, Any] = {k: v for k, v in named.items() if v not in (None, "")}
    if options.guide is not None:
        parameters |= {"guide_kind": options.guide.kind, "guide": options.guide.source}
    rows = {"stop_ids": options.stop_ids, "banned_ids": options.banned_ids}
    tensors = {name: list(row) for name, row in rows.items() if row}
    body = {"input_ids": list(prompt_ids), **tensors, "parameters": parameters}
    return orjson.dumps(body)


def options_of(rows: Mapping[str, Sequence[int]], parameters: Mapping[str, Any]) -> GenerateOptions:
    """The options of a request. Raises a `ValueError` for unknown parameters."""
    known = {*NUMBERS, *TEXTS, "guide_kind", "guide"}
    if unknown := sorted(set(parameters) - known):
        raise ValueError(f"unknown parameters: {', '.join(unknown)}")
    given = {name: parameters[name] for name in (*NUMBERS, *TEXTS) if name in parameters}
    guide = None
    if "guide" in parameters:
        guide = Guide(parameters["guide_kind"], parameters["guide"])
    return GenerateOptions(
        **{"max_tokens": 16, **given},
        stop_ids=tuple(rows.get("stop_ids", ())),
        banned_ids=tuple(rows.get("banned_ids", ())),
        guide=guide,
    )


def outputs_of(chunk: Chunk) -> dict[str, Any]:
    """The tensors of one chunk by name. An error has none."""
    values: dict[str, Any] = {"output_ids": list(chunk.token_ids)}
    if chunk.logprobs:
        values["logprobs"] = orjson.dumps([tuple(entry) for entry in chunk.logprobs]).decode()
    if chunk.cached_tokens is not None:
        values["cached_tokens"] = chunk.cached_tokens
    if chunk.finish is not None:
        values["finish_reason"] = chunk.finish
    if chunk.stop_id is not None:
        values["stop_id"] = chunk.stop_id
    return values


def logprobs_of(text: str) -> list[Logprob]:
    """The log probabilities in an output's JSON."""
    return [
        Logprob(token_id, logprob, tuple((other, value) for other, value in top))
        for token_id, logprob, top in orjson.loads(text)
    ]


def limits_text(limits: Limits) -> str:
    """The limits of an engine as JSON."""
    guides = {kind: sorted(ends) for kind, ends in limits.guides.items()}
    return orjson.dumps(
        {
            "context_tokens": limits.context_tokens,
            "max_batch": limits.max_batch,
            "max_logprobs": limits.max_logprobs,
            "longest_prompt": limits.longest_prompt,
            "guides": guides,
        }
    ).decode()


def limits_of(text: str) -> Limits:
    """The limits in a JSON text."""
    values = orjson.loads(text)
    guides = {kind: frozenset(ends) for kind, ends in values.pop("guides").items()}
    return Limits(**values, guides=guides)

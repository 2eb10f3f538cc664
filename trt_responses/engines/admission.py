"""Checks a request against an engine's limits before it starts; the same for all engines.

Works on sizes and options: no concrete engine.
"""

from __future__ import annotations

from trt_responses.engine import GenerateOptions, Limits
from trt_responses.errors import InvalidRequest, NotFound, Unsupported, refuse_longer


def room(prompt_length: int, options: GenerateOptions, limits: Limits) -> int:
    """The maximum number of ids for a request. Raises if the engine cannot accept it."""
    if prompt_length == 0:
        raise InvalidRequest("The prompt is empty: there is nothing to continue.", param="input")
    if options.adapter is not None and options.adapter not in limits.adapters:
        raise NotFound(
            f"This engine has no adapter '{options.adapter:.100}'.",
            param="model",
            code="model_not_found",
        )
    refuse_longer(prompt_length, limits.context_tokens - 1)
    refuse_longer(prompt_length, limits.longest_prompt)
    if options.logprobs is not None and not 0 <= options.logprobs <= limits.max_logprobs:
        raise Unsupported(
            f"Too many logprobs: {options.logprobs}, limit {limits.max_logprobs} on this engine.",
            param="top_logprobs",
        )
    if options.guide is not None and options.guide.kind not in limits.guides:
        raise Unsupported(f"This engine cannot guide its output by a {options.guide.kind}.")
    return min(options.max_tokens, limits.context_tokens - prompt_length)

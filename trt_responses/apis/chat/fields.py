"""What is done with each field of `POST /v1/chat/completions`."""

from __future__ import annotations

from trt_responses.wire.fields import Field, rows
from trt_responses.wire.judge import column_of

FIELDS: tuple[Field, ...] = (
    *rows("", "honoured", "", "model", "messages", "stream", "tools", "tool_choice"),
    *rows("", "honoured", "", "temperature", "top_p", "logprobs", "top_logprobs", "seed"),
    Field(
        "stop", "honoured", "in the answer only, not in reasoning and calls; not with `logprobs`"
    ),
    *rows("", "honoured", "", "frequency_penalty", "presence_penalty", "reasoning_effort"),
    Field("max_completion_tokens", "honoured", "includes reasoning"),
    Field("max_tokens", "honoured", "the old name of `max_completion_tokens`"),
    Field("response_format", "honoured", "JSON is guided: see structured-output.md"),
    Field(
        "parallel_tool_calls",
        "honoured",
        "gpt-oss makes one call, unless TRT_RESPONSES_MAX_CALLS allows more",
    ),
    Field("stream_options.include_usage", "honoured"),
    Field("stream_options.include_obfuscation", "ignored", "nothing is obfuscated"),
    Field("chat_template_kwargs.reasoning_effort", "honoured", ours=True),
    Field("include_reasoning", "honoured", "false hides reasoning", ours=True),
    *[Field(name, "honoured", ours=True) for name in ("top_k", "min_p")],
    *rows("", "ignored", "completions are not stored", "store", "metadata"),
    *rows("", "ignored", "", "user", "safety_identifier", "service_tier", "verbosity"),
    Field("prompt_cache_key", "ignored", "prompts with the same beginning are cached anyway"),
    *rows("", "ignored", "", "prompt_cache_retention", "prompt_cache_options"),
    Field(
        "n", "refused", "this server returns one choice", harmless=lambda value: value in (None, 1)
    ),
    Field("logit_bias", "ignored", "honoured as by `/v1/responses`, if that is installed"),
    Field(
        "modalities",
        "refused",
        "the model writes only text",
        harmless=lambda value: value in (None, ["text"]),
    ),
    *rows("", "refused", "the model writes only text", "audio", "prediction"),
    Field("web_search_options", "honoured", "as the tool `web_search`"),
    Field("functions", "refused", "use `tools`"),
    Field("function_call", "refused", "use `tool_choice`"),
    Field("moderation", "refused", "this server has no moderation"),
    Field(
        "input", "refused", "it belongs to `POST /v1/responses`: send the request there", ours=True
    ),
)
COLUMN = column_of(*FIELDS)

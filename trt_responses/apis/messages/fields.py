"""What is done with each field of `POST /v1/messages`."""

from __future__ import annotations

from trt_responses.wire.fields import Field, rows
from trt_responses.wire.judge import column_of

SAMPLING = ("temperature", "top_p", "top_k")

FIELDS: tuple[Field, ...] = (
    *rows("", "honoured", "", "model", "messages", "system", "stream"),
    Field("max_tokens", "honoured", "tokens of the thought count too; at most what has room"),
    *[Field(name, "honoured", "older clients", ours=True) for name in SAMPLING],
    Field("stop_sequences", "honoured", "in the answer alone, not in thoughts and calls"),
    Field("tools", "honoured", "those with an `input_schema`; others are left out and named"),
    Field("tool_choice", "honoured", "the choice is forced by steering, not by the prompt"),
    Field(
        "thinking",
        "honoured",
        "absent: the model thinks, and its thought is not shown; `disabled`: it does not think",
    ),
    Field("output_config.effort", "honoured", "low, medium, high; above: high"),
    Field("output_config.format", "honoured", "JSON is guided: see structured-output.md"),
    Field("output_format", "honoured", "the old name of `output_config.format`", ours=True),
    *[Field(name, "honoured", ours=True) for name in ("min_p", "seed")],
    Field("cache_control", "ignored", "prefixes are cached without it"),
    Field("metadata", "ignored"),
    Field("context_management", "ignored", "nothing is left out", ours=True),
    *rows("", "ignored", "", "service_tier", "speed", "inference_geo", "diagnostics"),
    *rows("", "ignored", "headers of the SDK's", "user_profile_id", "workspace_id"),
    Field("container", "refused", "nothing is run here"),
    Field("mcp_servers", "refused", "the client calls them", ours=True),
)
COLUMN = column_of(*FIELDS)

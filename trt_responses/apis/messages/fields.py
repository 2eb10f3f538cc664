"""What is done with each field of `POST /v1/messages`."""

from __future__ import annotations

from trt_responses.wire.fields import Field, rows
from trt_responses.wire.judge import column_of

SAMPLING = ("temperature", "top_p", "top_k")

FIELDS: tuple[Field, ...] = (
    *rows("", "honoured", "", "model", "messages", "system", "stream"),
    Field("max_tokens", "honoured", "includes reasoning; capped by the room in the context"),
    *[Field(name, "honoured", "for older clients", ours=True) for name in SAMPLING],
    Field("stop_sequences", "honoured", "in the answer only, not in reasoning and calls"),
    Field(
        "tools",
        "honoured",
        "functions, `mcp_toolset`, `web_search_…`, `web_fetch_…`, `code_execution_…`; others are "
        "dropped: see `x-trt-dropped-tools`",
    ),
    Field(
        "tool_choice",
        "honoured",
        "enforced while tokens are generated, not requested in the prompt",
    ),
    Field(
        "thinking",
        "honoured",
        "absent: the model reasons, and reasoning is hidden; `disabled`: no reasoning",
    ),
    Field("output_config.effort", "honoured", "low, medium, high; higher values become high"),
    Field("output_config.format", "honoured", "JSON is guided: see structured-output.md"),
    Field("output_format", "honoured", "the old name of `output_config.format`", ours=True),
    *[Field(name, "honoured", ours=True) for name in ("min_p", "seed")],
    Field("cache_control", "ignored", "prompts with the same beginning are cached anyway"),
    Field("metadata", "ignored"),
    Field("context_management", "ignored", "all messages are kept", ours=True),
    *rows("", "ignored", "", "service_tier", "speed", "inference_geo", "diagnostics"),
    *rows("", "ignored", "the SDK sends them as headers", "user_profile_id", "workspace_id"),
    Field("container", "honoured", "without `skills`"),
    Field("mcp_servers", "honoured", "never asks for an approval", ours=True),
)
COLUMN = column_of(*FIELDS)

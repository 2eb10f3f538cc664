"""What this server does with each field of a request, down to the kinds of items and tools.

A field is honoured, echoed (it stands in the answer and changes nothing else), ignored (named in
the header `x-trt-ignored`, or `x-trt-dropped-tools`), or refused by name unless it asks for what
happens anyway. The table only: `judge.py` enforces it, `GET /v1/fields` and docs/api.md tell it.

A row's path is a field, `outer.inner`; `include.value`; a key of each entry, `tools[].key`; or a
kind of entry, `tools[].type=kind`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from trt_responses.frozen import dataclass

Treatment = Literal["honoured", "echoed", "ignored", "refused"]


def nothing(value: Any) -> bool:
    """Whether a value asks for nothing: null, false, zero or an empty list."""
    return value in (None, False, 0) or value == []


@dataclass(frozen=True, slots=True)
class Field:
    """One row of the table: what is done with one field."""

    path: str
    treatment: Treatment
    note: str = ""
    ours: bool = False
    """Not one of the OpenAI SDK's."""
    harmless: Callable[[Any], bool] = nothing
    """Of a refused field: the values that ask for what happens anyway."""


PENALTY = "as in the specification; the embedded engine also counts the prompt's tokens"

OPTIONS: tuple[Field, ...] = (
    Field("model", "honoured", "absent: the one that is served"),
    Field("input", "honoured", "text only"),
    Field("instructions", "honoured", "not inherited from a previous response"),
    Field("stream", "honoured"),
    Field("store", "honoured"),
    Field("previous_response_id", "honoured"),
    Field("conversation", "honoured", "not with `previous_response_id`; see state.md"),
    Field("max_output_tokens", "honoured"),
    Field("temperature", "honoured"),
    Field("top_p", "honoured"),
    Field("top_logprobs", "honoured", "with `include: [message.output_text.logprobs]`"),
    Field("frequency_penalty", "honoured", PENALTY, ours=True),
    Field("presence_penalty", "honoured", PENALTY, ours=True),
    Field(
        "tools",
        "honoured",
        "for the client or the server to run: see `tools[].type`",
    ),
    Field(
        "tool_choice",
        "honoured",
        "enforced while tokens are generated, not requested in the prompt",
    ),
    Field("text.format", "honoured", "JSON is guided: see structured-output.md"),
    Field(
        "reasoning.effort",
        "honoured",
        "low, medium, high; other values become the nearest; `none` skips reasoning, `minimal` "
        "limits it",
    ),
    Field("reasoning.max_tokens", "honoured", "maximum tokens of reasoning", ours=True),
    Field("include", "honoured", "see `include.…`"),
    Field("background", "honoured", "needs `store`"),
    Field("context_management", "honoured", "one entry of type `compaction`: see state.md"),
    Field("truncation", "honoured", "`auto` drops the oldest turns: see `x-trt-truncated`"),
    Field("top_k", "honoured", ours=True),
    Field("min_p", "honoured", ours=True),
    Field("seed", "honoured", ours=True),
    Field("metadata", "echoed"),
    Field("safety_identifier", "echoed"),
    Field("prompt_cache_key", "echoed", "prompts with the same beginning are cached anyway"),
    Field("service_tier", "echoed", "always answered as `default`"),
    Field("max_tool_calls", "honoured", "limits calls of tools that the server runs"),
    Field(
        "parallel_tool_calls",
        "honoured",
        "gpt-oss makes one call per turn, unless TRT_RESPONSES_MAX_CALLS allows more",
    ),
    Field(
        "reasoning.summary",
        "echoed",
        "reasoning is returned in full; with TRT_RESPONSES_THOUGHT_SUMMARIES as its summary",
    ),
    Field("text.verbosity", "echoed"),
    Field("reasoning.generate_summary", "ignored"),
    Field("reasoning.mode", "ignored"),
    Field("stream_options.include_obfuscation", "ignored", "nothing is obfuscated"),
    Field(
        "prompt_cache_options.comparison_response_id",
        "honoured",
        "adds `prompt_cache_diagnostics`: see state.md",
    ),
    Field("prompt_cache_options.mode", "ignored"),
    Field("prompt_cache_options.prewarm", "ignored"),
    Field("prompt_cache_options.ttl", "ignored"),
    Field("prompt_cache_retention", "ignored"),
    Field("background_options", "ignored", "a response starts as soon as a slot is free"),
    Field("access_programs", "ignored"),
    Field("user", "ignored"),
    Field(
        "reasoning.context",
        "refused",
        "the model sees its reasoning until its next final answer",
        harmless=lambda value: value in (None, "auto", "current_turn"),
    ),
    Field("prompt", "refused", "prompt templates are not stored here"),
    Field("moderation", "refused", "this server has no moderation"),
    Field("image", "refused", "the model writes only text"),
)


def rows(path: str, treatment: Treatment, note: str, *kinds: str) -> list[Field]:
    """A row for each kind, all with the same treatment and note."""
    return [Field(path + kind, treatment, note) for kind in kinds]


SWITCHED_ON = "if the operator enables it (tools.md); otherwise like other hosted tools"
HISTORY = "accepted as history; shown to the model as a call and its result"
NOTED = "unless TRT_RESPONSES_NOTE_IMAGES is set: then a line of text replaces it"
RUN_ELSEWHERE = "dropped, see `x-trt-dropped-tools`; refused if the request has no other tool"

KINDS: tuple[Field, ...] = (
    *rows("include.", "honoured", "", "reasoning.encrypted_content"),
    *rows("include.", "honoured", "for text, not for reasoning", "message.output_text.logprobs"),
    Field(
        "include.metrics",
        "honoured",
        "times, tokens, segments and repairs, in the final response",
        ours=True,
    ),
    Field(
        "include.messages",
        "honoured",
        "`input_messages` and `output_messages` with token ids, in the final response",
        ours=True,
    ),
    *rows(
        "include.",
        "ignored",
        "",
        *("file_search_call.results", "web_search_call.results"),
        *("message.input_image.image_url", "computer_call_output.output.image_url"),
    ),
    *rows("include.", "honoured", SWITCHED_ON, "code_interpreter_call.outputs"),
    *rows("include.", "honoured", SWITCHED_ON, "web_search_call.action.sources"),
    *rows("input[].type=", "honoured", "", "message", "function_call", "function_call_output"),
    *rows("input[].type=", "honoured", "", "reasoning", "item_reference", "compaction"),
    *rows(
        "input[].type=",
        "honoured",
        "counts as this request's own fields",
        *("additional_tools", "configuration_update"),
    ),
    Field("input[].type=compaction_trigger", "honoured", "as the last item; see state.md"),
    *rows("input[].type=", "honoured", "", "custom_tool_call", "custom_tool_call_output"),
    Field("input[].type=agent_message", "honoured", "a message between Codex's agents", ours=True),
    *rows(
        "input[].type=",
        "honoured",
        HISTORY,
        *("web_search_call", "code_interpreter_call", "mcp_call", "mcp_list_tools"),
        *("mcp_approval_request", "mcp_approval_response", "local_shell_call"),
        *("local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call"),
        *("apply_patch_call_output", "tool_search_call"),
    ),
    Field("input[].type=tool_search_output", "honoured"),
    *rows(
        "input[].type=",
        "refused",
        "",
        *("file_search_call", "computer_call", "computer_call_output", "image_generation_call"),
        *("program", "program_output"),
    ),
    *rows("input[].content[].type=", "honoured", "", "input_text", "output_text", "refusal"),
    Field("input[].content[].type=text", "honoured", ours=True),
    *rows(
        "input[].content[].type=",
        "refused",
        NOTED,
        *("input_image", "input_file"),
    ),
    Field("input[].content[].type=input_audio", "refused", NOTED, ours=True),
    Field("input[].content[].type=input_video", "refused", NOTED, ours=True),
    *rows("tools[].type=", "honoured", "", "function"),
    *rows(
        "tools[].type=",
        "honoured",
        "a grammar is enforced, unless the engine does not support Lark: see `x-trt-schema-left`",
        "custom",
    ),
    *rows(
        "tools[].type=",
        "honoured",
        "the model sees `namespace__name`; the call has both apart",
        "namespace",
    ),
    *rows(
        "tools[].type=",
        "ignored",
        RUN_ELSEWHERE,
        *("file_search", "computer", "computer_use_preview"),
        *("programmatic_tool_calling", "image_generation"),
    ),
    Field("tools[].type=tool_search", "honoured"),
    Field(
        "tools[].type=shell",
        "honoured",
        "`shell_call` items for the client to run; with a container as `environment`, run by the "
        f"server {SWITCHED_ON}",
    ),
    *rows(
        "tools[].type=",
        "honoured",
        "their own kinds of call, for the client to run",
        "local_shell",
        "apply_patch",
    ),
    *rows("tools[].type=", "honoured", SWITCHED_ON, "code_interpreter", "mcp"),
    *rows("tools[].type=", "honoured", SWITCHED_ON, "web_search", "web_search_2025_08_26"),
    *rows("tools[].type=", "honoured", SWITCHED_ON, "web_search_preview"),
    *rows("tools[].type=", "honoured", SWITCHED_ON, "web_search_preview_2025_03_11"),
    *rows("tools[].", "honoured", "", "type", "name", "description", "parameters", "strict"),
    *rows("tools[].", "honoured", "", "format", "tools"),
    *rows("tools[].", "echoed", "", "output_schema"),
    *rows("tools[].", "honoured", "", "defer_loading"),
    *rows("tools[].", "ignored", "echoed", "allowed_callers", "async"),
    *rows("tool_choice.type=", "honoured", "", "function", "custom", "allowed_tools"),
    *rows("tool_choice.type=", "honoured", "", "shell", "apply_patch"),
    Field("tool_choice.type=local_shell", "honoured", ours=True),
    *rows("tool_choice.type=", "honoured", SWITCHED_ON, "code_interpreter", "mcp"),
    *rows("tool_choice.type=", "honoured", SWITCHED_ON, "web_search_preview"),
    *rows("tool_choice.type=", "honoured", SWITCHED_ON, "web_search_preview_2025_03_11"),
    Field("tool_choice.type=web_search", "honoured", SWITCHED_ON, ours=True),
    Field("tool_choice.type=web_search_2025_08_26", "honoured", SWITCHED_ON, ours=True),
    *rows(
        "tool_choice.type=",
        "refused",
        "this server does not run it",
        *("file_search", "computer_use_preview", "computer_use", "image_generation"),
        *("programmatic_tool_calling", "computer"),
    ),
)

FIELDS: tuple[Field, ...] = OPTIONS + KINDS

TABLE = {field.path: field for field in FIELDS}
NESTED = frozenset(field.path.partition(".")[0] for field in OPTIONS if "." in field.path)


def honoured(prefix: str) -> list[str]:
    """The supported kinds of one field, such as `input[].type=`."""
    return [
        path.removeprefix(prefix)
        for path, field in TABLE.items()
        if path.startswith(prefix) and field.treatment == "honoured"
    ]

"""An example of everything that a request may hold, for each endpoint that takes a body.

Knows the API's words and no part of the server.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

BASE: Json = {"model": "demo", "input": "Hello"}
FRAME: Json = {"type": "response.create", "max_output_tokens": 16} | BASE
"""Of a WebSocket. Each event of an answer is a frame, so the answers are short."""
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
FUNCTION = {"type": "function", "name": "f", "description": "x", "parameters": SCHEMA}
GRAMMAR = {"type": "grammar", "syntax": "regex", "definition": "a+"}

MCP_SERVER = {
    **{"type": "mcp", "server_label": "s", "server_url": "https://a.example/mcp"},
    **{"allowed_tools": ["f"], "headers": {"key": "value"}},
    "require_approval": {"never": {"tool_names": ["f"]}},
}

OPTIONS: tuple[Json, ...] = (
    {"include": ["reasoning.encrypted_content"]},
    {"instructions": "Be brief."},
    {"max_output_tokens": 5},
    {"max_tool_calls": 5},
    {"metadata": {"key": "value"}},
    {"previous_response_id": "resp_1"},
    {"prompt_cache_key": "x"},
    {"prompt_cache_retention": "24h"},
    {"reasoning": {"effort": "low", "summary": "auto", "max_tokens": 9}},
    {"safety_identifier": "x"},
    {"service_tier": "auto"},
    {"stream": False, "stream_options": {"include_obfuscation": False}},
    {"temperature": 1.0, "top_p": 1.0, "top_logprobs": 1, "seed": 1, "top_k": 1, "min_p": 0.5},
    {"frequency_penalty": 1.0, "presence_penalty": 1.0},
    {"text": {"format": {"type": "text"}, "verbosity": "low"}},
    {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
    {"tools": [FUNCTION | {"strict": True}]},
    {"tools": [FUNCTION]},
    {"tools": [{"type": "custom", "name": "c", "description": "x", "format": GRAMMAR}]},
    {"tools": [{"type": "custom", "name": "c", "format": {"type": "text"}}]},
    {"tools": [{"type": "namespace", "name": "n", "description": "x", "tools": [FUNCTION]}]},
    {"tools": [FUNCTION, {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}}]},
    {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "f"}},
    {
        "tools": [FUNCTION],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}],
        },
    },
    {"tools": [MCP_SERVER]},
    {"truncation": "auto"},
    {"user": "x"},
)
"""Every field of a request but its input, where it can be stretched."""

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
CUSTOM = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}
PART = {"type": "input_text", "text": "x"}
PATCH = {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file"}}
SHELL = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
LOCAL = {"type": "local_shell_call", "id": "c", "call_id": "c", "action": {"command": ["ls"]}}
MCP = {"server_label": "s", "name": "f", "arguments": "{}"}
LOGPROB = {"token": "a", "logprob": -1.5, "bytes": [97], "top_logprobs": []}
ANSWER = {"type": "output_text", "text": "x", "annotations": [], "logprobs": [LOGPROB]}

INPUTS: tuple[str | list[Json], ...] = (
    "Hello",
    [{"role": "user", "content": "x"}],
    [{"role": "developer", "content": [PART]}],
    [{"type": "message", "role": "user", "content": [PART, {"type": "refusal", "refusal": "x"}]}],
    [{"type": "message", "role": "assistant", "content": [ANSWER]}],
    [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,x"}]}],
    [CALL, {"type": "function_call_output", "call_id": "c", "output": "x"}],
    [CALL, {"type": "function_call_output", "call_id": "c", "output": [PART]}],
    [CUSTOM, {"type": "custom_tool_call_output", "call_id": "c", "output": [PART]}],
    [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}],
    [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "x"}]}],
    [{"type": "reasoning", "summary": [], "encrypted_content": "x"}],
    [{"type": "item_reference", "id": "msg_1"}],
    [{"type": "web_search_call", "action": {"type": "search", "queries": ["x"]}}],
    [{"type": "code_interpreter_call", "code": "1", "outputs": [{"type": "logs", "logs": "x"}]}],
    [{"type": "mcp_call", "output": "x", **MCP}],
    [{"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "f"}]}],
    [
        {"type": "mcp_approval_request", "id": "m", **MCP},
        {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True},
    ],
    [LOCAL, {"type": "local_shell_call_output", "call_id": "c", "output": "x"}],
    [SHELL, {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "x"}]}],
    [PATCH, {"type": "apply_patch_call_output", "call_id": "c", "output": "x"}],
)
"""An input of each kind."""
FEW = (*INPUTS[:5], INPUTS[6], INPUTS[11])
"""What is played where inputs are read as in a response: texts, messages, calls and seals."""

CHAT: Json = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}
CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
CHAT_CUSTOM = {"type": "custom", "custom": {"name": "c", "format": {"type": "text"}}}
CHAT_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT_ALLOWED = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]}
CHATS: tuple[Json, ...] = (
    {"tools": [CHAT_TOOL]},
    {"tools": [CHAT_CUSTOM]},
    {
        "tools": [CHAT_TOOL],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": CHAT_ALLOWED},
    },
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
    {"stop": ["x"]},
    {"metadata": {"key": "value"}},
    {"chat_template_kwargs": {"reasoning_effort": "low"}},
    {"messages": [{"role": "developer", "content": [{"type": "text", "text": "x"}]}]},
    {"messages": [{"role": "user", "content": "x", "name": "n"}]},
    {
        "messages": [
            {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x"}]},
        ]
    },
    {"messages": [{"role": "assistant", "reasoning_content": "x", "content": "x"}]},
)
"""Fields and messages of a chat completion."""

MESSAGE: Json = {
    "model": "demo",
    "max_tokens": 16,
    "messages": [{"role": "user", "content": "Hello"}],
}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}]}
MESSAGES: tuple[Json, ...] = (
    {"tools": [{"name": "f", "description": "x", "input_schema": SCHEMA}]},
    {"tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}},
    {"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
    {"stop_sequences": ["x"]},
    {"metadata": {"user_id": "x"}},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
    {
        "messages": [
            {"role": "assistant", "content": [{"type": "text", "text": "x"}, USE]},
            {"role": "user", "content": [RESULT]},
        ]
    },
)
"""Fields and messages of Anthropic's Messages."""

CONVERSATION: Json = {
    "metadata": {"key": "value"},
    "items": [{"type": "message", "role": "user", "content": [PART]}],
}

GENERATE: Json = {"text_input": "Hello", "parameters": {"max_tokens": 5, "stop_words": ["x"]}}
CONTAINERS: tuple[Json, ...] = (
    {"name": "mine", "expires_after": {"anchor": "last_active_at", "minutes": 5}},
    {"name": "mine", "file_ids": [""], "memory_limit": "1g"},
)
"""The second asks for what no server has."""
INFER: Json = {
    "inputs": [{"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["Hello"]}]
}

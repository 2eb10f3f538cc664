"""The table of fields against the SDK's own list, both ways: none forgotten, none invented."""

from __future__ import annotations

import json
import typing
from typing import Any, get_args, get_type_hints

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.responses import response_create_params as create
from openai.types.responses import response_input_param, tool_choice_types_param
from openai.types.responses.response_includable import ResponseIncludable
from openai.types.responses.response_input_message_content_list_param import (
    ResponseInputContentParam,
)
from openai.types.responses.response_text_config_param import ResponseTextConfigParam
from openai.types.responses.tool_param import ToolParam
from openai.types.shared_params.reasoning import Reasoning

from scripts.reference.fields import FIELD_TABLES, table
from trt_responses.apis.chat.fields import FIELDS as CHAT
from trt_responses.apis.messages.fields import FIELDS as MESSAGES
from trt_responses.errors import InvalidRequest
from trt_responses.wire.choice import TYPES
from trt_responses.wire.fields import FIELDS, KINDS, OPTIONS, TABLE
from trt_responses.wire.parse import parse

CLIENT_TOOLS = ("FunctionToolParam", "CustomToolParam", "NamespaceToolParam")


def types_of(member: Any) -> set[str]:
    """The values of a TypedDict's `type`."""
    if not hasattr(member, "__annotations__"):
        return set()
    named = get_type_hints(member).get("type")
    return {value for value in _literals(named) if isinstance(value, str)}


def _literals(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is typing.Literal:
        return get_args(hint)
    return tuple(value for part in get_args(hint) for value in _literals(part))


def keys(prefix: str, *shapes: Any) -> set[str]:
    return {f"{prefix}{key}" for shape in shapes for key in get_type_hints(shape)}


def sdk_options() -> set[str]:
    nested = {
        "reasoning": keys("reasoning.", Reasoning),
        "text": keys("text.", ResponseTextConfigParam),
        "stream_options": keys("stream_options.", create.StreamOptions),
        "prompt_cache_options": keys("prompt_cache_options.", create.PromptCacheOptions),
    }
    plain = keys("", create.ResponseCreateParamsBase, create.ResponseCreateParamsStreaming)
    return (plain - nested.keys()).union(*nested.values())


def sdk_kinds() -> set[str]:
    items = get_args(get_args(response_input_param.ResponseInputParam)[0])
    tools = get_args(ToolParam)
    client = [tool for tool in tools if tool.__name__ in CLIENT_TOOLS]
    choices = get_args(create.ToolChoice)
    parts = {
        *("output_text", "refusal"),
        *(kind for part in get_args(ResponseInputContentParam) for kind in types_of(part)),
    }
    return {
        *(f"include.{value}" for value in get_args(ResponseIncludable)),
        *(f"input[].type={kind}" for item in items for kind in types_of(item)),
        *(f"input[].content[].type={kind}" for kind in parts),
        *(f"tools[].type={kind}" for tool in tools for kind in types_of(tool)),
        *keys("tools[].", *client),
        *(f"tool_choice.type={kind}" for choice in choices for kind in types_of(choice)),
    }


def test_every_parameter_of_the_sdk_has_its_row_and_every_other_row_is_called_ours() -> None:
    for rows, theirs in ((OPTIONS, sdk_options()), (KINDS, sdk_kinds())):
        ours = {field.path for field in rows if field.ours}
        assert {field.path for field in rows} - ours == theirs
        assert not ours & theirs
    assert len(TABLE) == len(FIELDS)
    assert tool_choice_types_param  # the hosted choices come from its literal, through the union


MINIMAL: dict[str, dict[str, Any]] = {
    "message": {"role": "user", "content": "x"},
    "compaction": {"encrypted_content": "x"},
    "function_call": {"call_id": "c", "name": "f", "arguments": "{}"},
    "function_call_output": {"call_id": "c", "output": "x"},
    "reasoning": {"summary": []},
    "agent_message": {"author": "a", "recipient": "b", "content": []},
    "item_reference": {"id": "x"},
    "custom_tool_call": {"call_id": "c", "name": "f", "input": "x"},
    "custom_tool_call_output": {"call_id": "c", "output": "x"},
    "web_search_call": {"id": "ws", "action": {"type": "search"}, "status": "completed"},
    "code_interpreter_call": {"id": "ci", "code": "1", "container_id": "c", "outputs": None},
    "mcp_call": {"id": "m", "server_label": "s", "name": "f", "arguments": "{}"},
    "mcp_list_tools": {"id": "m", "server_label": "s", "tools": []},
    "mcp_approval_request": {"id": "m", "server_label": "s", "name": "f", "arguments": "{}"},
    "mcp_approval_response": {"approval_request_id": "m", "approve": True},
    "local_shell_call": {"id": "l", "call_id": "c", "action": {"type": "exec"}},
    "additional_tools": {"role": "developer", "tools": []},
    "configuration_update": {"reasoning": {"effort": "low"}},
    "local_shell_call_output": {"id": "l", "output": "x"},
    "shell_call": {"call_id": "c", "action": {"commands": ["ls"]}},
    "shell_call_output": {"call_id": "c", "output": [{"stdout": "x"}]},
    "apply_patch_call": {"call_id": "c", "operation": {"type": "delete_file", "path": "x"}},
    "apply_patch_call_output": {"call_id": "c", "status": "completed"},
    "tool_search_call": {"id": "t", "arguments": {}, "execution": "client", "call_id": "c"},
    "tool_search_output": {"call_id": "c", "tools": []},
    "program": {"id": "p", "call_id": "c", "code": "1", "fingerprint": "f"},
    "program_output": {"id": "p", "call_id": "c", "result": "1", "status": "completed"},
}
"""An item of each kind that is taken, as the SDK requires it."""

ITEM_KINDS = [field for field in FIELDS if field.path.startswith("input[].type=")]


@pytest.mark.parametrize("field", ITEM_KINDS, ids=lambda field: field.path)
def test_an_item_is_taken_or_refused_as_its_row_says(field: Any) -> None:
    kind = field.path.partition("=")[2]
    item = {"type": kind} | MINIMAL.get(kind, {"id": "x"})
    body = json.dumps({"model": "m", "input": [item]}).encode()
    if field.treatment == "honoured":
        assert parse(body).input[0].type == kind  # type: ignore[union-attr]
    else:
        with pytest.raises(InvalidRequest) as caught:
            parse(body)
        assert caught.value.param == "input[0]"


CHOICES = [field for field in FIELDS if field.path.startswith("tool_choice.type=")]


@pytest.mark.parametrize("field", CHOICES, ids=lambda field: field.path)
def test_a_choice_is_taken_or_refused_as_its_row_says(field: Any) -> None:
    kind = field.path.partition("=")[2]
    choice: dict[str, Any] = {"type": kind, "name": "f"}
    if kind == "allowed_tools":
        choice = {"type": kind, "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
    if kind in set(TYPES) - {"function", "custom"}:
        del choice["name"]
    if kind == "mcp":
        choice["server_label"] = "s"
    body = json.dumps({"model": "m", "input": "x", "tool_choice": choice}).encode()
    if field.treatment == "honoured":
        assert parse(body).tool_choice.type == kind  # type: ignore[union-attr]
    else:
        with pytest.raises(InvalidRequest) as caught:
            parse(body)
        assert caught.value.param == "tool_choice"


@pytest.mark.parametrize("endpoint", FIELD_TABLES)
def test_the_table_for_people_names_every_field(endpoint: str) -> None:
    """`tests/unit/docs/test_reference.py` compares the page with this table."""
    shown = table(FIELD_TABLES[endpoint])
    for field in FIELD_TABLES[endpoint]:
        names = (field.path, field.path.rpartition("=")[2], field.path.partition(".")[2])
        rows = [row for row in shown.splitlines() if any(f"`{name}`" in row for name in names)]
        assert any(f"| {field.treatment} |" in row for row in rows), field.path


def test_every_field_of_a_chat_completion_has_its_row() -> None:
    known = {field.path.partition(".")[0] for field in CHAT}
    asked = {*CompletionCreateParamsBase.__annotations__, "stream"}
    assert asked - known == set()
    theirs = {field.path.partition(".")[0] for field in CHAT if not field.ours}
    assert theirs <= asked


@pytest.mark.slow  # 32 MB: all of Anthropic's types
def test_every_field_of_a_message_has_its_row() -> None:
    from anthropic.types.message_count_tokens_params import MessageCountTokensParams
    from anthropic.types.message_create_params import MessageCreateParamsBase

    asked = {*MessageCreateParamsBase.__annotations__, *MessageCountTokensParams.__annotations__}
    theirs = {field.path.partition(".")[0] for field in MESSAGES if not field.ours}
    assert theirs == asked | {"stream"}

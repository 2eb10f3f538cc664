"""Bodies of requests that a hostile or unlucky client sends: each field of the API at its bounds.

An example of everything that a request may hold is stretched at each of its places: lists get more
entries, objects more keys, texts more characters, numbers more digits. Knows the API's words and
no part of the server.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Path = tuple[str | int, ...]

Json = dict[str, Any]

BYTES, VALUES = 4 << 20, 50_000
"""The server's bounds by default."""
MARGIN = 2048
"""Bytes and values that the rest of a body takes."""

BASE: Json = {"model": "demo", "input": "Hello"}
FRAME: Json = {"type": "response.create"} | BASE
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
CONTAINER: Json = {
    "name": "mine",
    "expires_after": {"anchor": "last_active_at", "minutes": 5},
    "file_ids": [],
    "memory_limit": "1g",
}
INFER: Json = {
    "inputs": [{"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["Hello"]}]
}

SCRIPTS = {
    "spaces": " ",
    "prose": "Lorem ipsum, dolor sit amet. ",
    "one emoji": "a",
    "mixed scripts": "aé漢字 дом 🎉 עברית ",
    "escapes": "\n",
    "dense": "qZ9+/x0Vb",
    "quotes": '\\"[,{',
}
"""What long texts are made of."""


COUNT = "/v1/responses/input_tokens"
CONVERSATION_ID = "CONVERSATION"
"""In a path: the id of a conversation that is made before."""
ITEMS = f"/v1/conversations/{CONVERSATION_ID}/items"
SOCKET = "websocket"
"""In the place of a path: a frame of a WebSocket at `/v1/responses`."""


class Body(NamedTuple):
    name: str
    make: Callable[[], bytes]
    """Made when it is played: all of them together would not fit into memory."""
    path: str = "/v1/responses"


def reported() -> Iterator[Body]:
    """The bodies by which the server was once held for seconds, as large as they were."""
    regexes = [
        {"type": "custom", "name": f"c{n}", "format": GRAMMAR | {"definition": f"[a-z]{{{n + 1}}}"}}
        for n in range(1024)
    ]
    named = [{"type": "function", "name": f"f{n}"} for n in range(1000)]
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": named * 125}
    yield Body("input: 290,000 × 1", lambda: _joined(input=[1] * 290_000))
    yield Body("input: 8,000,000 × 1", lambda: _joined(input=[1] * 8_000_000))
    yield Body("1,000,000 unknown keys", lambda: _joined(**{f"k{n}": 1 for n in range(1_000_000)}))
    yield Body("include: 2,000,000 × ''", lambda: _joined(include=[""] * 2_000_000))
    content = [PART] * 100_000
    yield Body("100,000 parts", lambda: _joined(input=[{"role": "user", "content": content}]))
    text = SCRIPTS["mixed scripts"] * 480_000
    yield Body("15 MB of mixed scripts", lambda: _joined(input=text))
    yield Body("1,024 tools with regexes", lambda: _joined(tools=regexes))
    yield Body("125,000 allowed of 1,000", lambda: _joined(tools=named, tool_choice=allowed))


def stretched() -> Iterator[Body]:
    """Each example at its bounds, once for each of its places."""
    for option in OPTIONS:
        yield from _each_place(next(iter(option)), option, BASE)
    for given in INPUTS:
        yield from _each_place(_kind(given), {"input": given}, BASE)
    for chat in CHATS:
        yield from _each_place("chat", chat, CHAT, "/v1/chat/completions")
    for message in MESSAGES:
        yield from _each_place("messages", message, MESSAGE, "/v1/messages")
    for given in FEW:
        kind = _kind(given)
        yield from _each_place(f"count {kind}", {"input": given}, BASE, COUNT)
        yield from _each_place(f"frame {kind}", {"input": given}, FRAME, SOCKET)
        items = {"items": given if isinstance(given, list) else []}
        yield from _each_place(f"items {kind}", items, {}, ITEMS)
    for option in ({"tools": [FUNCTION | {"strict": True}]}, {"metadata": {"key": "value"}}):
        kind = next(iter(option))
        yield from _each_place(f"count {kind}", option, BASE, COUNT)
        yield from _each_place(f"frame {kind}", option, FRAME, SOCKET)
    yield from _each_place("conversation", CONVERSATION, {}, "/v1/conversations")
    yield from _each_place("container", CONTAINER, {}, "/v1/containers")
    yield from _each_place(
        "compact",
        {"input": [{"type": "message", "role": "user", "content": [PART]}]},
        BASE,
        "/v1/responses/compact",
    )
    yield from _each_place("generate", GENERATE, {}, "/v2/models/demo/generate")
    yield from _each_place("infer", INFER, {}, "/v2/models/demo/infer")
    for name, data in ODD.items():
        yield Body(name, partial(bytes, data))
    yield Body("unknown keys", lambda: _joined(**{f"k{n}": 1 for n in range(VALUES - MARGIN)}))
    yield Body("unknown key: list", lambda: _joined(zzz=[{}] * (VALUES // 2 - MARGIN)))
    deep: Any = "x"
    for _ in range(190):
        deep = {"a": deep, "b": [1] * 500}
    yield Body("unknown key: deep", lambda: _joined(zzz=deep))
    yield Body("tools.parameters: deep", lambda: _joined(tools=[FUNCTION | {"parameters": deep}]))
    wide = {"type": "object", "properties": {f"p{n}": {} for n in range(30)}}
    tools = [FUNCTION | {"name": f"f{n}", "parameters": wide} for n in range(1024)]
    yield Body("tools: 1,024 of 30 properties", lambda: _joined(tools=tools))


def schemas() -> Iterator[Body]:
    """Schemas and grammars that take long to compile, or much memory."""
    nested = "((a|b){1,30}c?){1,30}"
    definitions = {f"d{n}": {"type": "string", "pattern": f"^{nested}x{n}$"} for n in range(20)}
    made: dict[str, Json] = {
        "one long value": {"enum": ["x" * 1_000_000]},
        "lists in a list": {"const": [[n] for n in range(15_000)]},
        "values beside lengths": {
            "enum": [f"v{n}" for n in range(9_000)],
            "anyOf": [{"minLength": n} for n in range(3_000)],
        },
        "5,000 members": {"type": "object", "properties": {f"p{n}": {} for n in range(5_000)}}
        | {"required": [f"p{n}" for n in range(5_000)]},
        "2,000 patterns": {
            "anyOf": [{"type": "string", "pattern": f"^{nested}x{n}$"} for n in range(2_000)]
        },
        "3,000 patterns of names": {"patternProperties": {f"^a{n}$": {} for n in range(3_000)}},
        "20 patterns at once": {
            "$defs": definitions,
            "allOf": [{"$ref": f"#/$defs/{name}"} for name in definitions],
        },
    }
    for name, schema in made.items():
        form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
        yield Body(f"schema: {name}", partial(_joined, text={"format": form}))
    rules = "".join(f'r{n}: "a" r{n + 1} "b"?\n' for n in range(2_800))
    for name, grammar in (("rules", f'start: r0\n{rules}r2800: "a"'), ("quotes", '"\\' * 32_000)):
        lark = {"type": "grammar", "syntax": "lark", "definition": grammar}
        tool = {"type": "custom", "name": "c", "format": lark}
        yield Body(f"grammar: {name}", partial(_joined, tools=[tool]))


def _each_place(name: str, example: Json, base: Json, url: str = "/v1/responses") -> Iterator[Body]:
    for path, value in _places(example):
        for how, change in _changes(value, path):
            place = ".".join("[]" if isinstance(step, int) else step for step in path)
            yield Body(f"{name} {place}: {how}", _maker(base | example, path, change), url)


ODD: dict[str, bytes] = {
    "no JSON: ones": b"1 " * (BYTES // 2 - 1),
    "no JSON: brackets": b"[" * BYTES,
    "no JSON: a text without end": b'{"input": "' + b"x" * (BYTES - 20),
    "no JSON: quotes": b'"' * BYTES,
    "no JSON: backslashes": b"\\" * BYTES,
    "no JSON: NUL": b"\0" * BYTES,
    "a text of commas": b'{"model":"demo","input":"' + b"," * (BYTES - 40) + b'"}',
    "a text of escaped quotes": b'{"model":"demo","input":"' + rb"\"," * (BYTES // 3 - 40) + b'"}',
    "a doubled key": b'{"model":"demo",' + b'"input":"a",' * (VALUES - MARGIN) + b'"input":"a"}',
    "surrogates": b'{"model":"demo","input":"' + rb"\ud83d\ude00" * (BYTES // 12 - 9) + b'"}',
    "a lone surrogate": b'{"model":"demo","input":"' + rb"\ud83d" * (BYTES // 6 - 9) + b'"}',
    "not UTF-8": b'{"model":"demo","input":"' + b"x" * (BYTES - 99) + b'\xff"}',
}


def _joined(**fields: Any) -> bytes:
    return _written(BASE | fields)


def _written(body: Json) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _kind(given: str | list[Json]) -> str:
    return "text" if isinstance(given, str) else str(given[-1].get("type", "message"))


def _places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if path:
        yield path, value
    if isinstance(value, dict | list):
        for step, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(one, (*path, step))


def _changes(value: Any, path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    match value:
        case list() if value:
            written = json.dumps(value)
            each = sum(map(written.count, ",[{")) // len(value) + 1
            n = min((VALUES - MARGIN) // each, (BYTES - MARGIN) * len(value) // len(written))
            yield f"{n:,} entries", lambda: (value * n)[:n]
            yield "entries of another type", lambda: [*value, *[1] * (VALUES - MARGIN)]
        case dict():
            yield "unknown keys", lambda: value | {f"k{n}": 1 for n in range(VALUES - MARGIN)}
        case str() if path[-1] not in ("type", "role", "syntax"):
            for name in SCRIPTS if len(path) == 1 else ("mixed scripts", "spaces"):
                yield name, partial(_text, name)
        case bool() | str():
            yield "another type", lambda: [1] * 1000
        case int() | float():
            yield "4,000 digits", lambda: 10**4000 - 1


def _text(name: str) -> str:
    unit = SCRIPTS[name]
    size = len(json.dumps(unit, ensure_ascii=False).encode()) - 2
    text = unit * ((BYTES - MARGIN) // size)
    return f"{text[:-1]}🎉" if name == "one emoji" else text


def _maker(example: Json, path: Path, change: Callable[[], Any]) -> Callable[[], bytes]:
    def make() -> bytes:
        return _written(_put(example, path, change()))

    return make


def _put(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _put(copy[path[0]], path[1:], new)
    return copy

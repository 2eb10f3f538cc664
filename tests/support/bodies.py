"""Bodies of requests that a hostile or unlucky client sends: each field of the API at its bounds.

An example of everything that a request may hold is stretched at each of its places: lists get more
entries, objects more keys, texts more characters, numbers more digits. Knows the API's words and
no part of the server.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.examples import (
    BASE,
    CHAT,
    CHATS,
    CONTAINERS,
    CONVERSATION,
    FEW,
    FRAME,
    FUNCTION,
    GENERATE,
    GRAMMAR,
    INFER,
    INPUTS,
    MESSAGE,
    MESSAGES,
    OPTIONS,
    PART,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.examples import Json

    Path = tuple[str | int, ...]

BYTES, VALUES = 4 << 20, 64_000
"""The server's bounds by default."""
MARGIN = 2048
"""Bytes and values that the rest of a body takes."""

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

COUNT, COUNT_MESSAGES = "/v1/responses/input_tokens", "/v1/messages/count_tokens"
ITEMS = "/v1/conversations/{conversation}/items"
"""Of a conversation that is made before."""
FILES = "/v1/containers/{container}/files"
"""Likewise."""
SOCKET = "websocket"
"""In the place of a path: a frame of a WebSocket at `/v1/responses`."""
FORM = "multipart/form-data; boundary=x"


class Body(NamedTuple):
    name: str
    make: Callable[[], bytes]
    """Made when it is played: all of them together would not fit into memory."""
    path: str = "/v1/responses"
    content_type: str = "application/json"
    wrong_at_its_end: bool = False
    """Whether all of it is read before it is refused, which takes as long as an answer may."""


def reported() -> Iterator[Body]:
    """The bodies by which the server was once held for seconds, as large as they were."""
    regexes = [
        {"type": "custom", "name": f"c{n}", "format": GRAMMAR | {"definition": f"[a-z]{{{n + 1}}}"}}
        for n in range(1024)
    ]
    named = [{"type": "function", "name": f"f{n}"} for n in range(1000)]
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": named * 125}
    yield Body("input: 290,000 × 1", lambda: _holding("input", _entries(b"1", 290_000)))
    yield Body("input: 8,000,000 × 1", lambda: _holding("input", _entries(b"1", 8_000_000)))
    yield Body("1,000,000 unknown keys", lambda: _unknown_keys(1_000_000))
    yield Body("include: 2,000,000 × ''", lambda: _holding("include", _entries(b'""', 2_000_000)))
    content = [PART] * 100_000
    yield Body("100,000 parts", lambda: _joined(input=[{"role": "user", "content": content}]))
    text = SCRIPTS["mixed scripts"].encode()
    yield Body("15 MB of mixed scripts", lambda: _holding("input", b'"%b"' % (text * 480_000)))
    yield Body("1,024 tools with regexes", lambda: _joined(tools=regexes))
    yield Body("125,000 allowed of 1,000", lambda: _joined(tools=named, tool_choice=allowed))


def with_known_tools() -> Iterator[Body]:
    """Bodies that make it dear to find their tools among those that came before."""
    numbers = {"type": "custom", "name": "c", "x": [1e-300] * 45}
    known = [{"type": "function", "name": "known", "description": "It came before. " * 4}]
    elsewhere = {f"k{n}": {"tools": known} for n in range(4)}
    long = {"type": "function", "name": "f", "parameters": {"enum": [1e-300] * 20_000}}
    text = "\n" * (BYTES // 2 - MARGIN)
    yield Body("known tools", lambda: _joined(tools=known))
    yield Body("known tools: behind a text", lambda: _joined(input=text, tools=known))
    yield Body("known tools: elsewhere", lambda: _joined(input=text, **elsewhere))
    cut = Body("known tools: cut", lambda: _joined(input=text, **elsewhere)[:-1])
    yield cut._replace(wrong_at_its_end=True)
    yield Body("known tools: blanks", lambda: _spread(b'"tools"%b:%b1'))
    yield Body("new tools: numbers", lambda: _joined(tools=[numbers] * 1000, **_empty_lists()))
    yield Body("new tools: one long one", lambda: _joined(tools=[long]))


def _empty_lists() -> Json:
    return {f"k{n}": {"tools": []} for n in range(4)}


def _spread(field: bytes) -> bytes:
    """A field with all the blanks that a body may have."""
    blanks = b" " * (BYTES // 2 - MARGIN)
    return _joined()[:-1] + b"," + field % (blanks, blanks) + b"}"


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
    yield from counted()
    yield from framed()
    yield from with_known_tools()
    for given in FEW[1:]:
        yield from _each_place(f"items {_kind(given)}", {"items": given}, {}, ITEMS)
    yield from _each_place("conversation", CONVERSATION, {}, "/v1/conversations")
    yield from _each_place(
        "compact",
        {"input": [{"type": "message", "role": "user", "content": [PART]}]},
        BASE,
        "/v1/responses/compact",
    )
    yield from _each_place("generate", GENERATE, {}, "/v2/models/demo/generate")
    yield from _each_place("infer", INFER, {}, "/v2/models/demo/infer")
    for name, make in ODD.items():
        yield Body(name, make)
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


def counted() -> Iterator[Body]:
    """What is counted and makes no answer."""
    for given in FEW:
        yield from _each_place(f"count {_kind(given)}", {"input": given}, BASE, COUNT)
    for option in ({"tools": [FUNCTION | {"strict": True}]}, {"instructions": "Be brief."}):
        yield from _each_place(f"count {next(iter(option))}", option, BASE, COUNT)
    for message in MESSAGES:
        yield from _each_place("count messages", message, MESSAGE, COUNT_MESSAGES)


def framed() -> Iterator[Body]:
    """What comes as a frame of a WebSocket."""
    for given in FEW:
        yield from _each_place(f"frame {_kind(given)}", {"input": given}, FRAME, SOCKET)
    for option in ({"tools": [FUNCTION | {"strict": True}]}, {"metadata": {"key": "value"}}):
        yield from _each_place(f"frame {next(iter(option))}", option, FRAME, SOCKET)
    yield from _each_place("frame lane", {"stream_id": "x"}, FRAME, SOCKET)
    yield Body("frame of no type", lambda: _joined(type=["x"] * (VALUES - MARGIN)), SOCKET)
    steered = {"type": "response.steer", "input": "é" * (BYTES // 2 - MARGIN)}
    yield Body("frame that steers", lambda: _joined(**steered), SOCKET)


def in_containers() -> Iterator[Body]:
    """What makes a container, and files that are put into one."""
    for container in CONTAINERS:
        yield from _each_place("container", container, {}, "/v1/containers")
    begun = b'--x\r\ncontent-disposition: form-data; name="file"'
    end = b"\r\n\r\nhello\r\n--x--"
    forms: dict[str, Callable[[], bytes]] = {
        "a file": lambda: (
            begun + b'; filename="f"\r\n\r\n' + b"x" * (BYTES - MARGIN) + b"\r\n--x--"
        ),
        "parts": lambda: b"--x\r\n" * (BYTES // 6),
        "parts of a name": lambda: (
            b'--x\r\ncontent-disposition: a; name="b"\r\n\r\n\r\n' * (BYTES // 50)
        ),
        "parts of parameters": lambda: (begun + b";" * 900 + b"\r\n\r\n\r\n") * (BYTES // 1000),
        "parameters": lambda: begun + b";" * (BYTES - MARGIN) + end,
        "parameters in quotes": lambda: begun + b'; a="' + b";" * (BYTES - MARGIN) + b'"' + end,
        "lines of a head": lambda: begun + b"\r\na:b" * (BYTES // 5 - MARGIN) + end,
        "a long name": lambda: begun + b'; filename="' + "дом".encode() * (BYTES // 7) + b'"' + end,
        "half a boundary": lambda: b"\r\n--" * (BYTES // 4),
    }
    for name, make in forms.items():
        open_end = name == "half a boundary"
        yield Body(f"upload: {name}", make, FILES, FORM, open_end)
    for name, boundary in (("parameters", ";" * 60_000), ("a boundary", "-" * 60_000)):
        kind = f"{FORM}{boundary}"
        yield Body(f"upload: {name} of its type", lambda: b"-" * (BYTES - MARGIN), FILES, kind)


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


ODD: dict[str, Callable[[], bytes]] = {
    "no JSON: ones": lambda: b"1 " * (BYTES // 2 - 1),
    "no JSON: brackets": lambda: b"[" * BYTES,
    "no JSON: a text without end": lambda: b'{"input": "' + b"x" * (BYTES - 20),
    "no JSON: quotes": lambda: b'"' * BYTES,
    "no JSON: backslashes": lambda: b"\\" * BYTES,
    "no JSON: NUL": lambda: b"\0" * BYTES,
    "a text of commas": lambda: _of_pieces(b","),
    "a text of escaped quotes": lambda: _of_pieces(rb"\","),
    "a doubled key": lambda: (
        b'{"model":"demo",' + b'"input":"a",' * (VALUES - MARGIN) + b'"input":"a"}'
    ),
    "surrogates": lambda: _of_pieces(rb"\ud83d\ude00"),
    "a lone surrogate": lambda: _of_pieces(rb"\ud83d"),
    "not UTF-8": lambda: b'{"model":"demo","input":"' + b"x" * (BYTES - 99) + b'\xff"}',
}


def _of_pieces(piece: bytes) -> bytes:
    """A body as long as may be whose input consists of these pieces."""
    return b'{"model":"demo","input":"' + piece * (BYTES // len(piece) - 40) + b'"}'


def _holding(field: str, value: bytes) -> bytes:
    """A body with a value in JSON: as Python's objects it would take many times the memory."""
    name = json.dumps(field).encode()
    return _joined(**{field: 0}).replace(name + b":0", name + b":" + value)


def _entries(entry: bytes, count: int) -> bytes:
    return b"[" + (entry + b",") * (count - 1) + entry + b"]"


def _unknown_keys(count: int) -> bytes:
    body = bytearray(_joined()[:-1])
    for n in range(count):
        body += b',"k%d":1' % n
    return bytes(body + b"}")


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

"""Lists of tools that come again: known by what they say, and by nothing less."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from trt_responses.errors import InvalidRequest
from trt_responses.response.accept.responses import accept
from trt_responses.wire.known_tools import Known, KnownTools, key_of
from trt_responses.wire.parse import parse

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def asked(*tools: dict[str, Any], **more: Any) -> bytes:
    return orjson.dumps({"model": "m", "input": "Hello!", "tools": tools} | more)


def test_the_same_tools_are_read_once_and_others_anew() -> None:
    first, again = (parse(asked(WEATHER, temperature=t)).tools for t in (0.5, 1.0))
    assert first is again
    assert isinstance(first, Known)
    other = parse(asked(WEATHER | {"strict": True})).tools
    assert other is not first
    assert [tool.model_dump() for tool in other or ()] != [tool.model_dump() for tool in first]


def test_what_is_made_of_known_tools_is_what_is_made_of_unknown_ones() -> None:
    space = {
        "type": "namespace",
        "name": "crm",
        "description": "Clients of ours.",
        "tools": [WEATHER],
    }
    odd = {"type": "web_search"}
    body = asked(WEATHER, space, odd, metadata={"place": "here"})
    first, again = (accept(parse(body)) for _ in range(2))
    assert first.tools is again.tools
    assert first == again
    assert [tool.name for tool in again.tools] == ["weather", "crm__weather"]
    assert again.unsupported_tools == ["web_search"]
    here = accept(parse(body), built_in={"web_search": ("browser",)})
    assert (list(here.unsupported_tools), len(here.echo.tools)) == ([], 3)
    assert [tool.kind for tool in here.built_in] == ["web_search"]
    others = (parse(asked(WEATHER, space, odd, include=[f"x{n}"])) for n in range(3))
    kept = [accept(other, built_in={"web_search": ("browser",)}).built_in for other in others]
    assert all(one is here.built_in for one in kept), "a client's words make what is kept grow"
    for recipients in (("browser",), ("search", "look")):
        (run_here,) = accept(parse(body), built_in={"web_search": recipients}).built_in
        assert run_here.recipients == recipients


@pytest.mark.parametrize("fault", [{"name": 5}, {"name": None}, {"parameters": "none"}])
def test_a_fault_is_told_each_time(fault: dict[str, Any]) -> None:
    told = set()
    for _ in range(2):
        with pytest.raises(InvalidRequest) as raised:
            parse(asked(WEATHER, WEATHER | fault))
        told.add((raised.value.message, raised.value.param))
    ((_, param),) = told
    assert param == f"tools[1].{next(iter(fault))}"


def test_what_json_cannot_tell_apart_is_told_apart() -> None:
    def body(value: str) -> bytes:
        return asked(WEATHER).replace(
            b'"type":"object"', b'"type":"object","least":%s' % value.encode()
        )

    lists = [parse(body(value)).tools for value in ("null", "1e400", "-1e400", "1", "1.0", "true")]
    assert len({id(tools) for tools in lists}) == len(lists)
    for value, tools in zip(("null", "1e400"), lists, strict=False):
        assert parse(body(value)).tools is tools


def test_secrets_and_what_is_no_list_of_tools_are_not_kept() -> None:
    server = {"type": "mcp", "server_label": "x", "server_url": "https://x", "authorization": "s"}
    assert key_of([WEATHER, server]) is None
    large = [WEATHER | {"most": 1 << 80}]
    odds: tuple[Any, ...] = ([], {}, None, "tools", [1], [{}], [{"type": []}], large)
    for odd in odds:
        assert key_of(odd) is None, odd


def test_the_longest_unused_go_first_when_there_are_too_many() -> None:
    keys = [b"%d" % n * 10 for n in range(4)]
    kept = KnownTools(limit_bytes=30)
    for key in keys[:3]:
        kept.keep(key, [])
    assert kept.find(keys[0]) is not None
    kept.keep(keys[3], [])
    assert [kept.find(key) is not None for key in keys] == [True, False, True, True]
    kept.keep(b"x" * 31, [])
    assert [kept.find(key) is not None for key in keys] == [False] * 4

"""Lists of tools that come again: known by what they say, and by nothing less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from trt_responses.accept.responses import accept
from trt_responses.errors import InvalidRequest
from trt_responses.features.known_tools.install import (
    MOST_ALIKE,
    MOST_BYTES,
    KnownTools,
    SentTools,
)
from trt_responses.wire.known_tools import Known
from trt_responses.wire.limits import RequestLimits
from trt_responses.wire.parse import parse, request_json, steps
from trt_responses.wire.request import Request

if TYPE_CHECKING:
    from collections.abc import Generator

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


def test_a_list_in_another_place_or_written_twice_is_never_taken_for_the_requests() -> None:
    """Whatever stands elsewhere in a body, and however the list is written, the tools are those of
    the last key, as a parser reads them."""
    other = WEATHER | {"name": "another"}
    one, two = (orjson.dumps([tool]).decode() for tool in (WEATHER, other))
    escaped = f'"to\\u006fls":{two}'
    within = orjson.dumps('"tools":' + one).decode()
    told = f'"metadata":{{"said":{within}}}'
    bodies = {
        f'"tools":{one}': "weather",
        f'"tools": {one}': "weather",
        f'"tools":{one},"tools":{two}': "another",
        f'"tools":{two},"tools":{one}': "weather",
        f'"x":{{"tools":{one}}},"tools":{two}': "another",
        f'"x":{{"tools":{one}}},{escaped}': "another",
        f'"tools":{one},{escaped}': "another",
        f'{told},"tools":{two}': "another",
        f'"x":{{"tools":{one}}}': None,
        f'"x":{{"tools":{one}}},"tools":null': None,
        f'"tools":{one},"tools":null': None,
    }
    for _ in range(2):
        for body, name in bodies.items():
            tools = parse(f'{{"model":"m","input":"","text":null,{body}}}'.encode()).tools
            assert (tools[0].name if tools else None) == name, body  # type: ignore[union-attr]


@pytest.mark.parametrize("end", ["", "]", ',"x"', "\x00"])
def test_a_body_that_is_no_json_is_refused_alike_whether_its_tools_came_before(end: str) -> None:
    whole = asked(WEATHER)
    broken = whole[:-1] + end.encode()
    told = []
    for known in (False, True):
        if known:
            parse(whole)
        with pytest.raises(InvalidRequest) as raised:
            parse(broken.replace(b"city", b"town") if not known else broken)
        told.append(raised.value.message)
    assert told[0] == told[1]


def test_too_many_tools_are_refused_though_they_came_before() -> None:
    space = {"type": "namespace", "name": "s", "description": "", "tools": [WEATHER] * 3}
    body = asked(space)
    for most, within in ((3, True), (2, False)):
        reading = steps(body, Request, RequestLimits(tools=most))
        if within:
            exhaust(reading)
        else:
            with pytest.raises(InvalidRequest, match="2 entries at most, got 3"):
                exhaust(reading)


def exhaust(reading: Generator[None, None, Request]) -> None:
    for _ in reading:
        pass


def test_secrets_and_what_is_no_list_of_tools_are_not_kept() -> None:
    server = {"type": "mcp", "server_label": "x", "server_url": "https://x", "authorization": "s"}
    first, again = (parse(asked(WEATHER, server)).tools for _ in range(2))
    assert first is not again
    assert not isinstance(again, Known)
    policy = {"type": "allowlist", "domain_secrets": [{"domain": "a.b", "name": "k", "value": "s"}]}
    code = {"type": "code_interpreter", "container": {"type": "auto", "network_policy": policy}}
    for _ in range(2):
        assert not isinstance(parse(asked(WEATHER, code)).tools, Known)
    odds: tuple[Any, ...] = ([], {}, "tools", [1], [{}], [{"type": []}])
    for odd in odds:
        body = orjson.dumps({"model": "m", "input": "", "tools": odd})
        assert not isinstance(request_json(body)["tools"], Known)
    deep = asked(WEATHER).replace(b'{"city"', b'{"x":' * 150 + b"1" + b"}" * 150 + b',"city"')
    with pytest.raises(InvalidRequest):
        parse(deep)


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({}, True),
        ({"allowed_tools": ["find"], "require_approval": "never"}, True),
        ({"server_url": "https://x/s3cret/mcp"}, False),
        ({"authorization": "s3cret"}, False),
        ({"headers": {"x-key": "s3cret"}}, False),
        ({"key": "s3cret"}, False),
    ],
)
def test_an_operators_server_is_kept_where_nothing_can_be_a_secret(
    more: dict[str, Any], kept: bool
) -> None:
    server = {"type": "mcp", "server_label": "x", "server_description": "Of the operator's."}
    first, again = (parse(asked(WEATHER, server | more)).tools for _ in range(2))
    assert (first is again) == isinstance(again, Known) == kept


def test_the_longest_unused_go_first_when_there_are_too_many() -> None:
    bodies = [asked(WEATHER | {"name": f"weather_{n}"}) for n in range(4)]
    size = len(orjson.dumps([WEATHER | {"name": "weather_0"}]))
    kept = KnownTools(limit_bytes=3 * size)

    def is_known(body: bytes) -> bool:
        tools = kept.parsed(body, orjson.loads)["tools"]
        if isinstance(tools, SentTools):
            kept.keep(SentTools(parse(body).tools or (), tools.sent, kept))
        return isinstance(tools, Known)

    assert [is_known(body) for body in (*bodies[:3], bodies[0], bodies[3])] == [
        *(False, False, False),
        *(True, False),
    ]
    assert [is_known(body) for body in (bodies[0], bodies[2], bodies[3])] == [True] * 3
    assert not is_known(bodies[1])
    assert not is_known(asked(*(WEATHER | {"name": f"w{n}"} for n in range(4))))
    assert not any(map(is_known, bodies))


def test_few_are_kept_of_those_that_begin_alike() -> None:
    """They are looked through one by one, and a client could send any number of them."""
    kept = KnownTools()
    bodies = [asked(WEATHER | {"strict": True, "x": n}) for n in range(3 * MOST_ALIKE)]
    for body in bodies:
        tools = kept.parsed(body, orjson.loads)["tools"]
        kept.keep(SentTools(parse(body).tools or (), tools.sent, kept))
    known = [isinstance(kept.parsed(body, orjson.loads)["tools"], Known) for body in bodies]
    assert known == [False] * 2 * MOST_ALIKE + [True] * MOST_ALIKE


def test_a_list_among_others_is_known_and_one_that_is_too_long_is_not() -> None:
    parse(asked(WEATHER))
    spaces = [
        {"type": "namespace", "name": f"n{n}", "description": "", "tools": [WEATHER]}
        for n in range(9)
    ]
    listed = {
        "type": "mcp_list_tools",
        "id": "mcpl_1",
        "server_label": "x",
        "tools": [{"name": "t", "input_schema": {}}],
    }
    body = orjson.dumps({"model": "m", "input": [listed] * 9, "tools": spaces})
    first, again = (parse(body).tools for _ in range(2))
    assert first is again
    long = asked(WEATHER | {"description": "x" * MOST_BYTES})
    assert type(request_json(long)["tools"]) is list
    others = [{"tools": ["x" * (MOST_BYTES // 4)]}] * 4
    for before, looked_for in ((others[:3], True), (others, False)):
        behind = orjson.dumps({"input": before, "tools": [WEATHER]})
        tools = KnownTools().parsed(behind, orjson.loads)["tools"]
        assert isinstance(tools, SentTools) is looked_for


def test_of_those_that_begin_alike_the_one_in_use_stays() -> None:
    kept = KnownTools()

    def is_known(number: int) -> bool:
        body = asked(WEATHER | {"strict": True, "x": number})
        tools = kept.parsed(body, orjson.loads)["tools"]
        if isinstance(tools, SentTools):
            kept.keep(SentTools(parse(body).tools or (), tools.sent, kept))
        return isinstance(tools, Known)

    is_known(0)
    for number in range(1, 3 * MOST_ALIKE):
        assert not is_known(number)
        assert is_known(0)

"""A snapshot's JSON: its tools are written once, and read as if they were written each time."""

import orjson

from trt_responses.frozen import replace
from trt_responses.log.entries import ResponsesSpelling
from trt_responses.wire.response import EchoedTools, Response

TOOLS = EchoedTools([{"type": "function", "name": "tide", "parameters": {"type": "object"}}])
BEGUN = Response(id="resp_a", created_at=17, model="demo", tools=TOOLS)


def json_of(response: Response) -> bytes:
    return ResponsesSpelling().json_of(response)


def test_a_snapshot_is_the_same_json_whether_its_tools_were_written_before_or_not() -> None:
    first = json_of(BEGUN)
    later = json_of(replace(BEGUN, status="completed"))
    assert first == orjson.dumps(BEGUN)
    assert later == orjson.dumps(replace(BEGUN, status="completed"))


def test_a_snapshot_without_tools_is_the_json_of_its_fields() -> None:
    for tools in ((), EchoedTools()):
        bare = replace(BEGUN, tools=tools)
        assert json_of(bare) == orjson.dumps(bare)


def test_the_tools_of_like_responses_are_written_once() -> None:
    json_of(BEGUN)
    written = TOOLS.json
    json_of(replace(BEGUN, id="resp_b"))
    assert TOOLS.json is written

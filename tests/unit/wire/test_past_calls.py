"""Items of tools' calls that clients send back: the seam that folders fill."""

from __future__ import annotations

import pytest

from trt_responses.errors import InvalidRequest
from trt_responses.wire.parse import parse
from trt_responses.wire.past_calls import KINDS, settled_places

CALL = '{"type": "mcp_call", "server_label": "s", "name": "n", "arguments": "{}"%s}'
YES = '{"type": "mcp_approval_response", "approval_request_id": "%s", "approve": true}'


def items(*sent: str) -> list[object]:
    body = '{{"model": "m", "input": [{}]}}'.format(", ".join(sent))
    return list(parse(body.encode()).input or ())


def test_an_approval_says_nothing_where_what_its_call_gave_stands_among_the_items() -> None:
    done = CALL % ', "approval_request_id": "b"'
    assert settled_places(items(YES % "a", YES % "b", done)) == [1]
    assert settled_places(items(YES % "a", CALL % "")) == []


def test_an_item_of_a_kind_that_is_not_installed_is_refused_by_name() -> None:
    gone = KINDS.pop("mcp_call")
    try:
        with pytest.raises(InvalidRequest, match="not installed here") as refused:
            items(CALL % "")
    finally:
        KINDS["mcp_call"] = gone
    assert refused.value.param == "input[0]"


def test_a_fault_in_such_an_item_names_its_place() -> None:
    with pytest.raises(InvalidRequest) as refused:
        items('{"type": "code_interpreter_call", "outputs": [1]}')
    assert refused.value.param == "input[0].outputs[0]"

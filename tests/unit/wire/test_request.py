"""The body of a request: what is taken, and how a fault is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_responses.errors import InvalidRequest
from trt_responses.wire.parse import parse, place
from trt_responses.wire.request import Request


def parsed(**fields: Any) -> Request:
    return parse(json.dumps({"model": "m", "input": "hi"} | fields).encode())


def fault(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**fields)
    return caught.value


@pytest.mark.parametrize(
    ("location", "written"),
    [
        ((), ""),
        (("model",), "model"),
        (
            ("input", "~list", 3, "~message", "content", "~list", 0, "text"),
            "input[3].content[0].text",
        ),
        (("metadata", "a.b", "[key]"), "metadata.a.b"),
        (("tools", 0, "~function", "name"), "tools[0].name"),
    ],
)
def test_a_place_is_written_as_the_api_writes_it(
    location: tuple[int | str, ...], written: str
) -> None:
    assert place(location) == written


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"temperature": 3}, "'temperature': it should be less than or equal to 2, got 3."),
        ({"stream": "yes"}, "'stream': it should be a valid boolean, got 'yes'."),
        ({"input": {"type": "message"}}, "'input': it should be a string or a list, got an object"),
        ({"conversation": 5}, "'conversation': it should be a string or an object, got 5."),
        ({"text": True}, "'text': it should be an object, got true."),
        ({"metadata": "a"}, "'metadata': it should be an object, got 'a'."),
        ({"metadata": dict.fromkeys("abcdefghijklmnopq", "")}, "at most 16 items, got an object."),
        ({"model": "x" * 0}, "'model': it should have at least 1 character, got ''."),
        ({"instructions": ["x" * 99]}, "'instructions': it should be a valid string, got a list"),
        ({"input": [{"type": "x" * 999}]}, "got an object of type 'xxxxx"),
        ({"user": 10**99}, "'user': it should be a valid string, got 1000"),
        ({"reasoning": {"effort": None, "summary": 1}}, "'reasoning.summary': it should be 'auto'"),
    ],
)
def test_a_fault_says_what_was_expected_and_what_came(fields: dict[str, Any], said: str) -> None:
    told = fault(**fields)
    assert said in told.message
    assert len(told.message) < 800
    assert "Input should" not in told.message


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(InvalidRequest, match="Missing required parameter: 'input'") as caught:
        parse(b'{"model": "m"}')
    assert (caught.value.param, caught.value.code) == ("input", "missing_required_parameter")


def test_a_body_that_is_no_object_has_no_param() -> None:
    for body in (b"[]", b"null", b'"x"'):
        with pytest.raises(InvalidRequest, match="'body'") as caught:
            parse(body)
        assert caught.value.param is None


def test_a_message_needs_no_type_and_its_parts_have_three_names() -> None:
    parts = [{"type": name, "text": "x"} for name in ("input_text", "output_text", "text")]
    request = parsed(input=[{"role": "user", "content": parts}])
    assert not isinstance(request.input, str)
    assert request.input[0].type == "message"


@pytest.mark.parametrize(
    "items",
    [
        [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x",
          "annotations": [], "logprobs": []}], "id": "msg_1", "status": "completed"}],
        [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc",
          "content": [{"type": "reasoning_text", "text": "Hm"}], "status": None}],
        [{"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}",
          "status": "completed"},
         {"type": "function_call_output", "call_id": "c", "output": "ok", "id": None}],
        [{"type": "function_call_output", "call_id": "c",
          "output": [{"type": "input_text", "text": "ok"}]}],
        [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}],
    ],
)  # fmt: skip
def test_items_as_clients_write_them_are_taken(items: list[dict[str, Any]]) -> None:
    request = parsed(input=items)
    assert len(request.input) == len(items)


def test_what_a_coding_agent_sends_beside_its_input_is_taken() -> None:
    request = parsed(
        reasoning={"summary": "auto"},
        store=False,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        client_metadata={"a": "b"},
        parallel_tool_calls=True,
        text={"verbosity": "low"},
        tools=[
            {
                "type": "function",
                "name": "shell",
                "strict": False,
                "parameters": {"type": "object"},
            },
            {"type": "web_search", "filters": None},
            {"type": "namespace", "name": "mcp", "tools": []},
        ],
    )
    assert [tool.type for tool in request.tools or ()] == ["function", "web_search", "namespace"]
    assert (request.model_extra or {}).keys() == {"client_metadata"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELD = st.sampled_from(sorted(Request.model_fields))


@settings(max_examples=300)
@given(st.dictionaries(FIELD, JSON, max_size=4))
def test_any_value_in_any_field_parses_or_is_a_fault_of_that_field(fields: dict[str, Any]) -> None:
    try:
        parsed(**fields)
    except InvalidRequest as told:
        param, code = told.param, told.code
    else:
        return
    assert code is not None
    assert param is None or param.split(".")[0].split("[")[0] in fields

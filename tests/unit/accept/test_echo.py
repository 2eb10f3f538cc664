"""The request's echo: whatever is accepted can be told back, and a strict client takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.replay import parsed
from tests.support.sdk_judge import refused
from trt_responses.accept.responses import accept
from trt_responses.errors import InvalidRequest
from trt_responses.frozen import replace
from trt_responses.log.log import Cursor, Log
from trt_responses.wire import events as e
from trt_responses.wire.parse import parse

if TYPE_CHECKING:
    from tests.support.replay import Json


def told(body: bytes) -> Json:
    """The first event of a response to this request, as its client reads it."""
    echo = accept(parse(body)).echo
    log = Log(replace(echo, id="resp_0", created_at=1, model="gpt-oss"))
    log.append(e.Created(log.response))
    (event,) = parsed(Cursor(log).take())
    return event


def body_with(**fields: object) -> bytes:
    return orjson.dumps({"model": "gpt-oss", "input": "Hi", **fields})


def with_parameters(parameters: bytes) -> bytes:
    tool = {"type": "function", "name": "f", "parameters": {"here": 1}}
    return body_with(tools=[tool]).replace(b'{"here":1}', parameters)


@pytest.mark.parametrize("number", [2**64, 10**40, -(2**63) - 1])
def test_an_integer_that_cannot_be_told_back_is_refused_at_its_place(number: int) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse(with_parameters(b'{"properties":{"a":{"maximum":%d}}}' % number))
    assert raised.value.param == "tools[0].parameters"
    assert "64 bits" in raised.value.message


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63), 0.5, 1e300])
def test_any_other_number_is_told_back_as_it_came(number: float) -> None:
    event = told(with_parameters(b'{"maximum":%b}' % orjson.dumps(number)))
    assert event["response"]["tools"][0]["parameters"] == {"maximum": number}


def test_a_null_means_the_default() -> None:
    fields = ("temperature", "top_p", "tools", "metadata", "store", "reasoning", "text", "stream")
    assert told(body_with(**dict.fromkeys(fields))) == told(body_with())


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "instructions": st.none() | TEXTS,
        "temperature": st.none() | st.floats(0, 2),
        "top_p": st.none() | st.floats(0.01, 1),
        "presence_penalty": st.none() | st.floats(-2, 2),
        "max_output_tokens": st.none() | st.integers(1, 2**40),
        "metadata": st.none() | st.dictionaries(TEXTS, TEXTS, max_size=4),
        "reasoning": st.none() | st.fixed_dictionaries({"effort": st.sampled_from(["low", None])}),
        "text": st.none() | st.fixed_dictionaries({"verbosity": st.sampled_from(["high", None])}),
        "tools": st.none()
        | st.lists(
            st.fixed_dictionaries(
                {"type": st.just("function"), "name": st.sampled_from(["f", "g"])},
                optional={
                    "description": st.none() | TEXTS,
                    "parameters": st.none() | st.dictionaries(TEXTS, VALUES, max_size=3),
                    "strict": st.none() | st.booleans(),
                },
            ),
            max_size=2,
            unique_by=lambda tool: str(tool["name"]),
        ),
    },
)


# 1 s on one core.
@settings(max_examples=150)
@given(FIELDS)
def test_whatever_is_asked_the_first_snapshot_satisfies_a_strict_client(fields: Json) -> None:
    event = told(body_with(**fields))
    assert refused(event) is None
    response = event["response"]
    for name in ("instructions", "max_output_tokens"):
        assert response[name] == fields.get(name)
    assert response["metadata"] == (fields.get("metadata") or {})
    for tool, sent in zip(response["tools"], fields.get("tools") or [], strict=True):
        assert {"description", "parameters", "strict"} <= tool.keys()
        assert tool["parameters"] == sent.get("parameters")

"""The body of a request on its own: its type, and the count of its values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from trt_responses.errors import ApiError
from trt_responses.web.body import Values, check_json


def request(content_type: str) -> Request:
    scope: dict[str, Any] = {
        "type": "http",
        "headers": [(b"content-type", content_type.encode("latin-1"))],
    }
    return Request(scope)


@pytest.mark.parametrize("sent", ["application/json", "APPLICATION/JSON ; charset=utf-8"])
def test_json_is_taken(sent: str) -> None:
    """What is not taken raises, as below."""
    check_json(request(sent))


@pytest.mark.parametrize("sent", ["", "text/plain", "application/json-patch+json"])
def test_what_a_page_can_send_unasked_is_not_taken(sent: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_json(request(sent))
    assert caught.value.status == 415


def counted(text: bytes, *cuts: int) -> int:
    values = Values()
    at = 0
    for cut in sorted(cut % (len(text) + 1) for cut in cuts):
        values.feed(text[at:cut])
        at = cut
    values.feed(text[at:])
    return values.count


def values_of(value: Any) -> int:
    match value:
        case list():
            return 1 + sum(map(values_of, value))
        case dict():
            return 1 + sum(map(values_of, value.values()))
        case _:
            return 1


def test_an_empty_piece_changes_nothing() -> None:
    body = b'{"a\\"": [null, ""], "": -1}'
    assert counted(body, 4, 4, 4) == counted(body)


TEXT = st.text(alphabet='\\",[]{}:é \n', max_size=6)
JSON = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.lists(st.integers(0, 1000), max_size=6), st.booleans())
def test_the_count_is_of_the_values_wherever_the_text_is_cut(
    value: Any, cuts: list[int], escaped: bool
) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode()
    empties = text.count(b"[]") + text.count(b"{}")  # texts may look like them
    assert values_of(value) - 1 <= counted(text, *cuts) <= values_of(value) - 1 + empties
    assert counted(text, *cuts) == counted(text)


def test_what_stands_in_texts_is_no_value() -> None:
    assert counted(json.dumps({"a": '[[[,,,{{{"\\', "b,": "\\"}).encode()) == 2

"""A custom tool's text out of its JSON: exact, whatever the pieces."""

from __future__ import annotations

import itertools
import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trt_responses.features.tool_items.custom_input import Unwrapper
from trt_responses.tokens.pieces import escaped


def unwrapped(text: str, cuts: list[int], *, whole: bool = True) -> str:
    """Fed in pieces cut at these places; each piece that comes out is valid by itself."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    unwrapper, said = Unwrapper(), ""
    for start, end in itertools.pairwise(places):
        for piece in unwrapper.feed([escaped(text[start:end])]):
            assert piece
            said += orjson.loads(b'"%b"' % piece)
    for piece in unwrapper.finish(whole=whole):
        said += orjson.loads(b'"%b"' % piece)
    return said


TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from('"\\/u{}\n🙂é'), max_size=30)
CUTS = st.lists(st.integers(0, 400), max_size=40)


# 2 s on one core.
@settings(max_examples=500)
@given(TEXTS, CUTS, st.booleans(), st.sampled_from([None, 1]))
def test_a_text_comes_out_as_json_reads_it_wherever_it_is_cut(
    text: str, cuts: list[int], ascii_only: bool, indent: int | None
) -> None:
    wrapped = json.dumps({"input": text}, ensure_ascii=ascii_only, indent=indent)
    assert unwrapped(wrapped, cuts) == text
    assert unwrapped(wrapped, list(range(len(wrapped)))) == text


@settings(max_examples=300)
@given(st.text(st.sampled_from('{}"\\inputu:D83dE0 \n'), max_size=24), CUTS, st.booleans())
def test_whatever_is_written_the_cuts_change_nothing(
    text: str, cuts: list[int], whole: bool
) -> None:
    assert unwrapped(text, cuts, whole=whole) == unwrapped(text, [], whole=whole)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("*** Begin Patch\n+ x", "*** Begin Patch\n+ x"),
        ('{"other": "x"}', '{"other": "x"}'),
        ('{"input": 5}', '{"input": 5}'),
        ('{"input": "say "hi" now"}', 'say "hi" now'),
        ('{"input": "a", "b": 1}', 'a", "b": 1}'),
        (r'{"input": "C:\xdir\u12g"}', r"C:\xdir\u12g"),
        (r'{"input": "\ud83d\ude42 \ud83d \ude42 \ud83dx"}', "🙂 \ufffd \ufffd \ufffdx"),
        ('{"input": "two\nlines"}', "two\nlines"),
        ('{"input": "no brace"', "no brace"),
        ('{"input": "open', "open"),
        ("{}", ""),
        (" { } ", ""),
        ("", ""),
        ('{"inp', '{"inp'),
    ],
)
def test_what_is_not_this_json_is_kept_as_it_was_written(written: str, told: str) -> None:
    for cuts in ([], list(range(len(written)))):
        assert unwrapped(written, cuts) == told


@pytest.mark.parametrize("cut", [r'{"input": "a\u00', r'{"input": "a\ud83d', '{"input": "a"'])
def test_of_a_text_that_was_cut_no_half_escape_is_told(cut: str) -> None:
    assert unwrapped(cut, [], whole=False) == "a"

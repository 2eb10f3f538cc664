"""Stop sequences: the same text is told, whatever pieces it comes in."""

from __future__ import annotations

import orjson
import pytest

from trt_responses.features.stop.install import StopText
from trt_responses.tokens.pieces import escaped


def told(text: str, stops: list[str], size: int) -> tuple[str, bool]:
    stopping = StopText(stops)
    pieces = [escaped(text[n : n + size]) for n in range(0, len(text), size)]
    found = [part for piece in pieces for part in stopping.feed([piece])]
    found += stopping.finish(whole=True)
    return "".join(orjson.loads(b'"%b"' % part) for part in found), stopping.found is not None


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("one two three", [" two"], ("one", True)),
        ("one two three", ["two ", "three"], ("one ", True)),
        ("aab", ["ab"], ("a", True)),
        ("aaab aab", ["aabb", "aab"], ("a", True)),
        ("abc", ["abc", "b"], ("a", True)),
        ('say "no"\n now', ['"\n'], ('say "no', True)),
        ("grüezi 🙂 wohl", ["🙂"], ("grüezi ", True)),
        ("nothing here", ["x", "heres"], ("nothing here", False)),
        ("", ["x"], ("", False)),
        ("stop", ["stop"], ("", True)),
    ],
)
def test_a_text_ends_before_the_stop_that_ends_first(
    text: str, stops: list[str], expected: tuple[str, bool], size: int
) -> None:
    assert told(text, stops, size) == expected


def test_text_is_held_back_only_while_it_may_become_a_stop() -> None:
    stopping = StopText(["END"])
    assert stopping.feed([b"one E"]) == [b"one "]
    assert stopping.feed([b"N"]) == []
    assert stopping.feed([b"E"]) == [b"EN"]
    assert stopping.finish(whole=False) == [b"E"]


def test_nothing_is_told_behind_a_stop() -> None:
    stopping = StopText(["."])
    assert stopping.feed([b"a.b"]) == [b"a"]
    assert stopping.feed([b"c"]) == []
    assert stopping.finish(whole=True) == []

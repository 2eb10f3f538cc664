"""Blocks and bodies at rest: what comes back is what was kept, or an error."""

from __future__ import annotations

import random
import struct
import zlib
from array import array

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_responses.store.base import Block
from trt_responses.store.blocks import Packed, pack, unpack
from trt_responses.store.phrases import PHRASES
from trt_responses.store.squeeze import SMALL_BYTES, squeeze, squeeze_body, stretch, stretch_body

RANDOM = random.Random(7)


def block(tokens: int, *, words: int = 40) -> Block:
    text = " ".join(f"word{RANDOM.randrange(500)}" for _ in range(words))
    item = orjson.dumps({"id": "msg_1", "content": [{"text": text, "type": "output_text"}]})
    ids = array("I", [RANDOM.randrange(200_000) for _ in range(tokens)]).tobytes()
    return Block("call", item, ids, call_id="call_1", callee="functions.tide")


SMALL, LARGE = block(3, words=1), block(300, words=400)


@pytest.mark.parametrize("kept", [block(0), SMALL, LARGE, block(5_000, words=30_000)])
def test_a_block_comes_back_as_it_was_under_the_same_name(kept: Block) -> None:
    packed = pack(kept)
    back = unpack(packed, check=True)
    assert back == kept
    assert pack(back) == packed
    assert pack(kept).digest == packed.digest


def test_what_is_large_takes_less_than_half_and_what_is_small_little_more() -> None:
    assert len(pack(LARGE).data) < (len(LARGE.item) + len(LARGE.ids)) / 2
    assert len(pack(SMALL).data) < len(SMALL.item) + len(SMALL.ids) + 64


@pytest.mark.parametrize("kept", [SMALL, LARGE], ids=["small", "large"])
def test_a_damaged_block_is_an_error_and_never_another_block(kept: Block) -> None:
    """Every byte flipped, and every cut."""
    digest, data = pack(kept)
    damaged = [data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :] for at in range(len(data))]
    damaged += [data[:at] for at in range(len(data))] + [data + b"\0"]
    refused = 0
    for wrong in damaged:
        try:
            assert unpack(Packed(digest, wrong), check=True) == kept
        except (ValueError, zlib.error):
            refused += 1
    assert refused > len(damaged) - 8, "what means nothing is a few bytes"


def test_blocks_that_differ_anywhere_have_different_names() -> None:
    near = [
        Block("call", b"ab", b"\1\0\0\0", "c", "d"),
        Block("call", b"ab", b"\2\0\0\0", "c", "d"),
        Block("call", b"ab", b"\1\0\2\0", "c", "d"),
        Block("call", b"ab", b"", "c", "d"),
        Block("call", b"a", b"\1\0\0\0", "cb", "d"),
        Block("call", b"ab", b"\1\0\0\0", None, "d"),
        Block("result", b"ab", b"\1\0\0\0", "c", "d"),
    ]
    assert len({pack(one).digest for one in near}) == len(near)


@pytest.mark.parametrize("size", [0, 1, SMALL_BYTES, SMALL_BYTES + 1, 100_000])
@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_a_body_is_stretched_to_what_it_was_with_what_was_left_out(size: int, place: float) -> None:
    like = b'{"type":"message","id":"msg_1"}'
    rest = bytes(RANDOM.choices(b'abc {}"', k=size))
    at = int(place * size)
    body = rest[:at] + like + rest[at:]
    assert stretch_body(squeeze_body(body, like), like) == body
    assert stretch_body(squeeze_body(rest, b""), b"") == rest
    assert stretch(squeeze(rest)) == rest
    assert len(squeeze_body(body, like)) <= size + 8


@given(st.lists(st.sampled_from([phrase for _, phrase in PHRASES]) | st.binary(max_size=4)))
def test_phrases_come_back_as_they_were_whatever_stands_between_them(parts: list[bytes]) -> None:
    """Also what holds a byte that stands for a phrase, or a phrase that another one makes."""
    said = b"".join(parts)
    assert stretch_body(squeeze_body(said, b""), b"") == said


def test_phrases_shorten_what_is_too_small_to_be_compressed() -> None:
    assert len(squeeze_body(b"".join(phrase for _, phrase in PHRASES), b"")) < 20


def test_a_body_that_is_cut_is_an_error() -> None:
    kept = squeeze_body(b"0123456789" * 1_000, b"")
    for at in range(len(kept)):
        with pytest.raises((ValueError, zlib.error, struct.error)):
            stretch_body(kept[:at], b"")
    with pytest.raises(ValueError, match="goes on"):
        stretch_body(kept + b"\0", b"")

"""Blocks and bodies at rest: what comes back is what was kept, or an error."""

from __future__ import annotations

import random
import struct
import zlib
from array import array
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_responses.store import Block, Kind
from trt_responses.stores.at_rest.blocks import KINDS, Packed, pack, unpack
from trt_responses.stores.at_rest.compress import (
    SMALL_BYTES,
    WORDS,
    leave_out,
    put_back,
    squeeze,
    stretch,
)
from trt_responses.stores.at_rest.phrases import BODY, ITEMS, PHRASES
from trt_responses.stores.whole import says_nothing
from trt_responses.wire.output import OutputMessage, OutputText

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.stores.at_rest.phrases import Phrase

RANDOM = random.Random(7)


def block(tokens: int, *, words: int = 40) -> Block:
    text = " ".join(f"word{RANDOM.randrange(500)}" for _ in range(words))
    item = orjson.dumps({"id": "msg_1", "content": [{"text": text, "type": "output_text"}]})
    ids = array("I", [RANDOM.randrange(200_000) for _ in range(tokens)]).tobytes()
    return Block("call", item, ids, call_id="call_1", callee="functions.tide")


def answer(text: str, *, also: bytes = b"") -> Block:
    """A message whose ids are its letters, and say its text."""
    item = OutputMessage("msg_1", "final_answer", "completed", (OutputText(text),))
    return Block("final", orjson.dumps(item) + also, array("I", map(ord, text)).tobytes())


def spell(ids: bytes) -> bytes:
    letters = array("I", ids[: len(ids) // 4 * 4])
    return orjson.dumps("".join(chr(n) for n in letters if n < 0xD800))[1:-1]


SMALL, LARGE = block(3, words=1), block(300, words=400)
SAID, LONG = answer('"Ahoy", 灯台守 said.\n'), answer("".join(map(chr, range(0x2000))))
TOO_LONG = answer("".join(map(chr, range(0xD000))))
REPAIRED = replace(SAID, item=SAID.item.replace(b"Ahoy", b"Ahoi"))
BLOCKS = {
    "empty": block(0),
    "small": SMALL,
    "large": LARGE,
    "larger": block(5_000, words=30_000),
    "said": SAID,
    "said at length": LONG,
    "said at too great length": TOO_LONG,
    "repaired": REPAIRED,
    "with a code": answer("Ahoy", also=b"\x12"),
    "ids of no vocabulary": replace(SAID, ids=SAID.ids + b"\0\0\4\0"),
    "ids of none at all": replace(SAID, ids=SAID.ids + b"\xff\xff\xff\xff"),
    **{f"{n} bytes of ids": replace(SAID, ids=SAID.ids[:n]) for n in range(1, 10)},
}


@pytest.mark.parametrize("kept", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_block_comes_back_as_it_was_under_the_same_name(kept: Block, kind: Kind) -> None:
    """Whether or not its text can be told from its ids."""
    kept = replace(kept, kind=kind)
    for told in (spell, says_nothing):
        packed = pack(kept, spell=told)
        back = unpack(packed, told, check=True)
        assert back == kept
        assert pack(back, spell=told) == packed
        assert packed.digest == pack(kept).digest


def test_what_the_ids_say_is_not_kept_a_second_time() -> None:
    for said in (SAID, LONG):
        count = len(said.ids) // 4
        assert len(pack(said, spell=spell).data) < 2.25 * count + 64
        assert len(pack(said).data) > 2.25 * count + len(said.item) / 8
    assert len(pack(REPAIRED, spell=spell).data) > len(pack(SAID, spell=spell).data) + 25


def test_a_large_block_is_never_spelled_for_that_would_hold_the_event_loop() -> None:
    def held(ids: bytes) -> bytes:
        raise AssertionError("it is spelled")

    assert unpack(pack(TOO_LONG, spell=held), held, check=True) == TOO_LONG


def test_what_is_read_with_other_words_is_an_error() -> None:
    for other in (says_nothing, lambda ids: b"Land", lambda ids: b"A" + spell(ids)[1:-1]):
        with pytest.raises(ValueError, match="another digest"):
            unpack(pack(SAID, spell=spell), other, check=True)


def test_blocks_are_read_that_were_kept_with_their_text_beside_the_ids() -> None:
    """Everything as it was packed before; today only ids that no vocabulary has are packed so."""
    raw = b"\x03" + struct.pack("<iii", 2, -1, 13) + b"c1" + b'{"id":"rs_1"}' + b"\1\2" + b"\0\0"
    low = b"\7\x08\x09\x0a"
    name = blake2b(raw + low, digest_size=20).digest()
    for rest in (b"=" + raw, b"z" + raw_deflated(raw)):
        kept = unpack(Packed(name, struct.pack("<i", 4) + low + rest), spell, check=True)
        ids = b"\7\x09\1\0\x08\x0a\2\0"
        assert kept == Block("preamble", b'{"id":"rs_1"}', ids, "c1")
        assert pack(kept).digest == name


def raw_deflated(raw: bytes) -> bytes:
    made = zlib.compressobj(1, zlib.DEFLATED, -12, 5, zdict=WORDS)
    return made.compress(raw) + made.flush()


def test_what_is_large_takes_less_than_half_and_what_is_small_little_more() -> None:
    assert len(pack(LARGE).data) < (len(LARGE.item) + len(LARGE.ids)) / 2
    assert len(pack(SMALL).data) < len(SMALL.item) + len(SMALL.ids) + 64


@pytest.mark.parametrize("kept", [SMALL, LARGE, SAID], ids=["small", "large", "said"])
def test_a_damaged_block_is_an_error_and_never_another_block(kept: Block) -> None:
    """Every byte flipped, and every cut."""
    digest, data = pack(kept, spell=spell)
    damaged = [data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :] for at in range(len(data))]
    damaged += [data[:at] for at in range(len(data))] + [data + b"\0"]
    refused = 0
    for wrong in damaged:
        try:
            assert unpack(Packed(digest, wrong), spell, check=True) == kept
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
    assert put_back(leave_out(body, like), like) == body
    assert put_back(leave_out(rest, b""), b"") == rest
    assert stretch(squeeze(rest)) == rest
    assert len(leave_out(body, like)) <= size + 8


TABLES = [BODY, *ITEMS.values(), ()]


@given(
    st.lists(st.sampled_from([phrase for _, phrase in PHRASES]) | st.binary(max_size=4)),
    st.sampled_from(TABLES),
)
def test_phrases_come_back_as_they_were_whatever_stands_between_them(
    parts: list[bytes], phrases: Sequence[Phrase]
) -> None:
    """Also what holds a byte that stands for a phrase, or a phrase that another one makes."""
    said = b"".join(parts)
    assert put_back(leave_out(said, b"", phrases), b"") == said


@pytest.mark.parametrize("phrases", TABLES[:-1])
def test_phrases_shorten_what_is_too_small_to_be_compressed(phrases: Sequence[Phrase]) -> None:
    said = b"".join(phrase for _, phrase in phrases)
    assert len(leave_out(said, b"", phrases)) == 6 + len(phrases)


def test_a_body_that_is_cut_is_an_error() -> None:
    kept = leave_out(b"0123456789" * 1_000, b"")
    for at in range(len(kept)):
        with pytest.raises((ValueError, zlib.error, struct.error)):
            put_back(kept[:at], b"")
    with pytest.raises(ValueError, match="has data after its end"):
        put_back(kept + b"\0", b"")

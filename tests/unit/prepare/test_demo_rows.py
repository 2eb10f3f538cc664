"""Rows of the demo's vocabulary that are made from what a token spells."""

from __future__ import annotations

import hashlib

import numpy as np

from trt_responses.prepare.demo_rows import PROPERTIES, WIDTH, pictures, properties, word


def likeness(one: bytes, other: bytes) -> float:
    a, b = pictures([one, other])
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_a_picture_is_the_same_on_every_machine() -> None:
    drawn = pictures([b" Priya", b"x"])
    assert drawn.shape == (2, WIDTH)
    assert drawn.dtype == np.float32
    shown = hashlib.sha256(np.round(drawn * 100).astype("<i4").tobytes()).hexdigest()
    assert shown[:16] == "ad827010901241ee"


def test_spellings_of_one_word_are_alike_and_words_are_not() -> None:
    assert likeness(b" Priya", b"priya") > 0.6
    assert abs(likeness(b" Priya", b" Olga")) < 0.4
    assert word(" Żółw".encode()) == "żółw".encode()
    assert word(b"\xe2\x82") == b"\xe2\x82"
    assert word(b"  ") == b"  "


def test_properties_are_what_can_be_seen_of_a_token() -> None:
    found = properties([b" Priya", b"42", b'":"', "né".encode(), b"\tROLE"])
    assert found.shape == (5, PROPERTIES)
    assert found.tolist() == [
        [1, 1, 1, 1, 0, 0, 0, 1, 0, 0],
        [1, 0, 0, 0, 1, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 1, 0, 0, 0, 0],
        [1, 0, 0, 1, 0, 0, 1, 0, 0, 0],
        [1, 0, 1, 1, 0, 0, 0, 0, 1, 1],
    ]

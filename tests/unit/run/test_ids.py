"""Ids that nobody can guess, in few letters."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from trt_responses.run.parts import ID_LETTERS, Ids, mint

if TYPE_CHECKING:
    import pytest


def test_an_id_has_letters_and_digits_only_and_at_least_128_bits() -> None:
    ids = {mint("resp") for _ in range(2000)}
    assert len(ids) == 2000
    assert all(re.fullmatch(rf"resp_[0-9A-Za-z]{{{ID_LETTERS}}}", each) for each in ids)
    assert ID_LETTERS * math.log2(62) >= 128
    assert len({letter for each in ids for letter in each[5:]}) == 62


def test_an_id_is_whole_though_most_random_bytes_give_no_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = [b"\xff" * 24, b"\xfb\xef\xbe" * 8, bytes(24)]
    monkeypatch.setattr("os.urandom", lambda _: given.pop(0))
    assert Ids().mint("req") == "req_" + "A" * ID_LETTERS

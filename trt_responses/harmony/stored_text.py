"""Ids of a stored message to its text, as an item's JSON has it, so that the text need not be kept.

Knows ids and bytes; knows no item and no store. What is said of an id here may never change, for
what was stored without its text is read with it.
"""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING

from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from trt_responses.tokens.pieces import Pieces
    from trt_responses.tokens.vocabulary import Vocabulary


class Spelled:
    """Called with a stored message's ids, it returns the text behind the header."""

    __slots__ = ("_pieces",)

    def __init__(self, vocabulary: Vocabulary, pieces: Pieces) -> None:
        plain = pieces.plain
        self._pieces = [
            plain.get(token_id) or _part(raw) for token_id, raw in enumerate(vocabulary.token_bytes)
        ]

    def __call__(self, ids: bytes) -> bytes:
        """The text; empty when the ids are no message, or have control ids in their text. For ids
        that are no whole characters the result is no JSON: callers must compare."""
        pieces, words = self._pieces, array("I")
        try:
            words.frombytes(ids)
            body = words[words.index(CONTROL.message) + 1 : -1]
            return b"".join(map(pieces.__getitem__, body))
        except (ValueError, IndexError):
            return b""


def _part(raw: bytes) -> bytes:
    """The JSON of an id that is a part of a character, and may be more, which orjson would
    refuse."""
    text = raw.decode("utf-8", "surrogateescape")
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogateescape")[1:-1]

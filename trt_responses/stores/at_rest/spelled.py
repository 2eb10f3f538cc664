"""Converts a stored Harmony message's ids to its text, as in an item's JSON: stores keep the ids
alone.

Works on ids and bytes: no item and no store. The text of an id may never change: messages stored
without their text are read with this table.
"""

from __future__ import annotations

import json
from array import array

from trt_responses.tokens.control import CONTROL
from trt_responses.tokens.pieces import Pieces
from trt_responses.tokens.vocabulary import Vocabulary


class Spelled:
    """A callable from a stored message's ids to the text after its header."""

    __slots__ = ("_pieces",)

    def __init__(self, vocabulary: Vocabulary, pieces: Pieces) -> None:
        raw = vocabulary.token_bytes
        plain = map(pieces.plain.get, range(len(raw)))
        self._pieces = [text or _part(raw[token_id]) for token_id, text in enumerate(plain)]

    def __call__(self, ids: bytes) -> bytes:
        """The text; empty if the ids are no message, or their text contains control ids. For ids
        that split characters the result is not valid JSON: callers must compare it with the
        text."""
        pieces, words = self._pieces, array("I")
        try:
            words.frombytes(ids)
            body = words[words.index(CONTROL.message) + 1 : -1]
            return b"".join(map(pieces.__getitem__, body))
        except (ValueError, IndexError):
            return b""


def _part(raw: bytes) -> bytes:
    """The JSON of an id that splits a character, which orjson would refuse."""
    text = raw.decode("utf-8", "surrogateescape")
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogateescape")[1:-1]

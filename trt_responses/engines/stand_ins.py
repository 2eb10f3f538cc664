"""Private characters that stand in for bytes of a character which several ids share.

llama.cpp streams no id while the text ends inside a character. So a model file spells each such
byte as one private character, and a guide must use the same spelling for characters it forces or
counts. Works on the vocabulary: no file and no engine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol


class Vocabulary(Protocol):
    """Each id's bytes, and a text's ids."""

    @property
    def token_bytes(self) -> Sequence[bytes]: ...

    def encode_plain(self, text: str) -> list[int]: ...


_FIRST = 0xFFE00, 0x10FE00
"""The first private characters for even and for odd bytes. A guide forces and tokenises the common
beginning of all continuations, so the possible next bytes of a character must not begin alike."""
_OF_ESCAPE = {0xDC00 + byte: _FIRST[byte % 2] + byte // 2 for byte in range(0x80, 0x100)}
"""The stand-in for each of Python's surrogate escapes."""
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")


def stand_in(byte: int) -> str:
    """The character that stands in for a byte of 128 or more."""
    return chr(_OF_ESCAPE[0xDC00 + byte])


def spelled(raw: bytes) -> str:
    """Bytes as a model file spells them: whole characters unchanged, other bytes as stand-ins."""
    return raw.decode("utf-8", "surrogateescape").translate(_OF_ESCAPE)


def is_whole(raw: bytes) -> bool:
    """Whether bytes are whole characters."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


class StandIns:
    """Spells texts as a model file does: stand-ins for each character that ids split."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def __call__(self, text: str) -> str:
        return text if text.isascii() else _BEYOND_ASCII.sub(self._spelled, text)

    def _spelled(self, match: re.Match[str]) -> str:
        token_bytes = self._vocabulary.token_bytes
        ids = self._vocabulary.encode_plain(match[0])
        if all(is_whole(token_bytes[token_id]) for token_id in ids):
            return match[0]
        return "".join(map(stand_in, match[0].encode()))

"""Characters that stand in for bytes which are no whole character within their id.

llama.cpp streams no id while its text ends inside a character, so a model file spells such bytes as
private characters, one for each; and a guide that forces a split character, or counts some, must
say it in theirs. Knows the vocabulary; knows no file and no engine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    class Vocabulary(Protocol):
        """Each id's bytes, and a text's ids."""

        @property
        def token_bytes(self) -> Sequence[bytes]: ...

        def encode_plain(self, text: str) -> list[int]: ...


_FIRST = 0xFFE00, 0x10FE00
"""Before the private characters of even bytes and of odd ones. A guide forces what all that may
follow has in common, and tokenises it: the bytes that may follow in a character must not begin
alike."""
_OF_ESCAPE = {0xDC00 + byte: _FIRST[byte % 2] + byte // 2 for byte in range(0x80, 0x100)}
"""Python's own mark for a byte that is no part of a whole character."""
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")


def stand_in(byte: int) -> str:
    """The character that stands in for a byte of 128 or more."""
    return chr(_OF_ESCAPE[0xDC00 + byte])


def spelled(raw: bytes) -> str:
    """Bytes as a model file spells them: whole characters as they are, other bytes by stand-ins."""
    return raw.decode("utf-8", "surrogateescape").translate(_OF_ESCAPE)


def is_whole(raw: bytes) -> bool:
    """Whether bytes are whole characters."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


class StandIns:
    """Texts as a model file spells them: each character that its ids split, by stand-ins."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def __call__(self, text: str) -> str:
        return text if text.isascii() else _BEYOND_ASCII.sub(self._spelled, text)

    def _spelled(self, found: re.Match[str]) -> str:
        token_bytes = self._vocabulary.token_bytes
        ids = self._vocabulary.encode_plain(found[0])
        if all(is_whole(token_bytes[token_id]) for token_id in ids):
            return found[0]
        return "".join(map(stand_in, found[0].encode()))

"""Characters that stand in for ids which are no whole characters by themselves.

llama.cpp streams no id while its text ends inside a character, so a model file calls such ids by
nameless characters; and a guide that forces a split character must say it in theirs. Knows the
vocabulary; knows no file and no engine.
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


_FIRST = 0xDF000
"""From here to the last code point there is one for each id."""
MOST_IDS = 0x110000 - _FIRST
"""There are no more of them."""
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")


def stand_in(token_id: int) -> str:
    """The character that stands in for an id."""
    return chr(_FIRST + token_id)


def is_whole(raw: bytes) -> bool:
    """Whether bytes are whole characters."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


class StandIns:
    """Texts as a model file spells them: each character that is split, by its ids' stand-ins."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def __call__(self, text: str) -> str:
        return text if text.isascii() else _BEYOND_ASCII.sub(self._spelled, text)

    def _spelled(self, found: re.Match[str]) -> str:
        token_bytes = self._vocabulary.token_bytes
        ids = self._vocabulary.encode_plain(found[0])
        if all(is_whole(token_bytes[token_id]) for token_id in ids):
            return found[0]
        return "".join(
            token_bytes[n].decode() if is_whole(token_bytes[n]) else stand_in(n) for n in ids
        )

"""Each id's text as a piece of JSON, and the decoding of bytes that split a character.

Works on ids and bytes: no messages, and no meaning of control ids.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import orjson

from trt_responses.tokens.control import FIRST_CONTROL_ID, VOCABULARY_SIZE

if TYPE_CHECKING:
    from trt_responses.tokens.vocabulary import Vocabulary


def escaped(text: str) -> bytes:
    """A JSON string body, copied to its exact size: orjson's result keeps a 4 kB buffer."""
    return orjson.dumps(text)[1:-1]


@lru_cache(maxsize=8192)  # an exception costs 1 µs, and the same few characters are split often
def advance(waiting: bytes) -> tuple[bytes, bytes]:
    """The decodable part of these bytes as JSON, and the rest, which waits for the next id.

    As openai-harmony does it: valid bytes are decoded, an incomplete character waits, and the first
    invalid bytes become one U+FFFD. Bytes after those wait undecoded.
    """
    try:
        return escaped(waiting.decode()), b""
    except UnicodeDecodeError as error:
        head = waiting[: error.start].decode()
        if error.reason == "unexpected end of data":
            return escaped(head), waiting[error.start :]
        return escaped(head + "\ufffd"), waiting[error.end :]


class Pieces:
    """The tables of a vocabulary: `plain` for ordinary ids that are text alone, `raw` for every id.

    `plain` is a dict, not a list: control ids, negative ids and huge ids are absent.
    """

    __slots__ = ("_spelled", "_token_bytes", "plain")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._spelled = {
            token_id: vocabulary.control_name(token_id).encode()
            for token_id in range(FIRST_CONTROL_ID, VOCABULARY_SIZE)
        }
        self.plain: dict[int, bytes] = _plain(vocabulary.token_bytes)

    def raw(self, token_id: int) -> bytes | None:
        """The bytes of an id, a control id spelled out; None outside the vocabulary."""
        if 0 <= token_id < FIRST_CONTROL_ID:
            return self._token_bytes[token_id]
        return self._spelled.get(token_id)


def _plain(token_bytes: tuple[bytes, ...]) -> dict[int, bytes]:
    table: dict[int, bytes] = {}
    dumps = orjson.dumps
    for token_id, raw in enumerate(token_bytes):
        try:
            quoted = dumps(raw.decode())
        except UnicodeDecodeError:
            continue
        # Escapes only lengthen, so equal length means equal bytes, and one object serves both.
        table[token_id] = raw if len(quoted) == len(raw) + 2 else quoted[1:-1]
    return table

"""Blocks with several messages: a call with its result, or the messages that a compaction replaces.

Each part has a head, its kind and its number of ids as plain text: ids alone do not tell the parts
apart, because each template writes its own marks around them. Works on ids and kinds: no template
and no item.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, cast, get_args

from trt_responses.store import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trt_responses.dialect import Place
    from trt_responses.dialects.templates.tokeniser import Tokeniser

HEAD_BYTES = 24
"""Upper bound on a head's length."""
KINDS = frozenset(get_args(Kind))


def join_parts(
    tokeniser: Tokeniser, parts: Sequence[tuple[Kind, bytes]]
) -> tuple[bytes, list[Place]]:
    """The parts joined with their heads, and the place of each part."""
    row = array("I")
    places: list[Place] = []
    for kind, ids in parts:
        size = len(ids) // row.itemsize
        row.extend(tokeniser.encode_plain(f"{kind} {size}\n"))
        begin = len(row) * row.itemsize
        row.frombytes(ids)
        places.append((kind, begin, begin + len(ids)))
    return row.tobytes(), places


def split_parts(tokeniser: Tokeniser, ids: bytes) -> list[tuple[Kind, array[int]]] | None:
    """The parts of a block; None if its ids are one message."""
    row = array("I")
    row.frombytes(ids)
    parts: list[tuple[Kind, array[int]]] = []
    at = 0
    while at < len(row):
        head = _head(tokeniser, row[at : at + HEAD_BYTES])
        if head is None:
            return None
        kind, size, head_ids = head
        begin = at + head_ids
        at = begin + size
        if at > len(row):
            return None
        parts.append((kind, row[begin:at]))
    return parts or None


def _head(tokeniser: Tokeniser, ids: array[int]) -> tuple[Kind, int, int] | None:
    """A head's kind and size, and the number of its own ids; None if the ids are no head."""
    text = b""
    for number, token_id in enumerate(ids, 1):
        if token_id in tokeniser.controls:
            return None
        text += tokeniser.bytes_of(token_id)
        if text.endswith(b"\n"):
            kind, _, size = text[:-1].decode("utf-8", "replace").partition(" ")
            if kind not in KINDS or not size.isdecimal():
                return None
            return cast("Kind", kind), int(size), number
        if len(text) > HEAD_BYTES:
            return None
    return None

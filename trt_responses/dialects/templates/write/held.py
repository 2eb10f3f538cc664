"""Blocks that hold several messages: a call with its answer, and what a compaction stands for.

Before each part stand its kind and the number of its ids, as plain text: a template writes marks of
its own around each of them, so ids alone would not say which they are. Knows ids and kinds; knows
no template and no item.
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
"""More than any head has."""
KINDS = frozenset(get_args(Kind))


def joined(tokeniser: Tokeniser, parts: Sequence[tuple[Kind, bytes]]) -> tuple[bytes, list[Place]]:
    """The parts as one row of ids, and where each of them stands in it."""
    row = array("I")
    places: list[Place] = []
    for kind, ids in parts:
        size = len(ids) // row.itemsize
        row.extend(tokeniser.encode_plain(f"{kind} {size}\n"))
        begin = len(row) * row.itemsize
        row.frombytes(ids)
        places.append((kind, begin, begin + len(ids)))
    return row.tobytes(), places


def parted(tokeniser: Tokeniser, ids: bytes) -> list[tuple[Kind, array[int]]] | None:
    """The parts again; None where the ids are one message's."""
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
    """What a head says, and how many ids it has itself."""
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

"""The messages that a model wrote in a turn, for a client to carry and to bring back.

A client that stores nothing here sends a turn's items again; ids that are found by an item's own
words render it to what was generated, not to what a tokeniser would make of it. Knows items and
ids; knows no cipher and no owner.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trt_responses.features.references.digest import DIGEST_BYTES, digest
from trt_responses.wire import items as i

MAX_BYTES = 64 * 1024 * 1024
"""The largest turn in bytes, unpacked: more than any context."""
SHORT_BYTES = 4096
WINDOWS = (12, 5), (15, 8)
"""zlib's window bits and memory for short turns and for long ones: to clear the memory of a long
one takes 30 µs."""
HEAD = struct.Struct(f"<{DIGEST_BYTES}sI")


class TurnMessage(NamedTuple):
    """A message of a turn: the digest of its item's content, and its ids."""

    digest: bytes
    ids: bytes
    """The ids, unsigned 32-bit, in this machine's byte order."""


class SealedTurn(NamedTuple):
    """The content of a reasoning item: its own message first, then others of its turn."""

    date: str
    """The date in the system message when it was written, so that a prefix outlives a midnight."""
    messages: tuple[TurnMessage, ...]
    vocabulary: str = ""
    """The vocabulary of the ids, by a dialect's name for it."""


def packed(turn: SealedTurn) -> bytes:
    """The bytes of a turn, the same on every machine."""
    head = (f"{turn.date} {turn.vocabulary}" if turn.vocabulary else turn.date).encode()
    parts = [bytes((len(head),)), head]
    for message in turn.messages:
        parts += (HEAD.pack(message.digest, len(message.ids)), swapped(message.ids))
    raw = b"".join(parts)
    window = WINDOWS[len(raw) > SHORT_BYTES]
    packing = zlib.compressobj(6, zlib.DEFLATED, *window)
    return packing.compress(raw) + packing.flush()


def unpacked(data: bytes) -> SealedTurn:
    """The turn in the bytes, which are authenticated and therefore not checked."""
    raw = zlib.decompressobj().decompress(data, MAX_BYTES)
    at = 1 + raw[0]
    (date, _, vocabulary), messages = raw[1:at].decode().partition(" "), []
    while at < len(raw):
        hashed, size = HEAD.unpack_from(raw, at)
        at += HEAD.size
        messages.append(TurnMessage(hashed, swapped(raw[at : at + size])))
        at += size
    return SealedTurn(date, tuple(messages), vocabulary)


def swapped(ids: bytes) -> bytes:
    """The ids turned between this machine's byte order and the one in the bytes."""
    if sys.byteorder == "little":
        return ids
    turned = array("I", ids)
    turned.byteswap()
    return turned.tobytes()


class OpenedTurns:
    """The turns that a request's items carry. Callers ask in the items' order."""

    def __init__(self, turns: Mapping[int, SealedTurn] | None = None) -> None:
        self._turns = turns or {}
        self._known: dict[bytes, TurnMessage] = {}
        # A turn may begin with a message that stands before the item that carries it.
        for place in sorted(self._turns, reverse=True):
            self._learn(self._turns[place].messages)

    @property
    def date(self) -> str | None:
        """The date of the conversation's first turn that is known."""
        return self._turns[min(self._turns)].date if self._turns else None

    def ids_at(self, place: int, item: i.InputItem) -> bytes | None:
        """The ids that the model wrote for the item at this place; None if the item's words are
        others now."""
        if not self._turns:
            return None
        turn = self._turns.get(place)
        if turn is not None:
            self._learn(turn.messages)
            if isinstance(item, i.Reasoning) and not item.content and not item.summary:
                return turn.messages[0].ids
        hashed = digest(item)
        known = self._known.get(hashed) if hashed is not None else None
        return None if known is None else known.ids

    def _learn(self, messages: Iterable[TurnMessage]) -> None:
        self._known.update((message.digest, message) for message in messages)

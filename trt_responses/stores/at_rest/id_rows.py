"""Stores ids as rows of bytes: all first bytes, then all second bytes, and so on.

The two low rows are incompressible. The high ones have two significant bits per id, because no
vocabulary has more than 2^18 ids. Works on bytes: no blocks.
"""

from __future__ import annotations

DIGITS = b"0123" + b"x" * 252
"""Maps a byte to a base-four digit; other bytes become an invalid digit."""
FOUR = [bytes((n >> 6, n >> 4 & 3, n >> 2 & 3, n & 3)) for n in range(256)]


def rows(ids: bytes) -> tuple[bytes, bytes]:
    """The two low rows of ids, and the two high ones."""
    return ids[0::4] + ids[1::4], ids[2::4] + ids[3::4]


def together(low: bytes, high: bytes) -> bytes:
    """Undo `rows`."""
    size = len(low) + len(high)
    first, third = (size + 3) // 4, (size + 1) // 4
    ids = bytearray(size)
    ids[0::4], ids[1::4] = low[:first], low[first:]
    ids[2::4], ids[3::4] = high[:third], high[third:]
    return bytes(ids)


def narrowed(high: bytes, count: int) -> bytes | None:
    """The high rows as two bits per id; None if they have more bits set."""
    bits, zeros = high[:count], high[count:]
    if zeros != bytes(count):
        return None
    try:
        return int(b"0" + bits.translate(DIGITS), 4).to_bytes(narrow_bytes(count), "big")
    except ValueError:
        return None


def widened(narrow: bytes, count: int) -> bytes:
    """Undo `narrowed`."""
    bits = b"".join([FOUR[four] for four in narrow])
    return bits[len(bits) - count :] + bytes(count)


def narrow_bytes(count: int) -> int:
    """The bytes for `count` ids of two bits each."""
    return (count + 3) // 4

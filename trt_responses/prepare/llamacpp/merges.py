"""The merges of a vocabulary of ranks: llama.cpp needs them to tokenise the text that a guide
forces. Without them a forced `é` has no ids, and the guide breaks off: the rest is unguided text
(tried); and forced words would be written letter by letter, unlike any model. Works on bytes and
ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

from trt_responses.engines.stand_ins import is_whole, spelled, stand_in


def merges(token_bytes: tuple[bytes, ...]) -> tuple[tuple[bytes, bytes], ...]:
    """The two parts of each id of more than one byte, in the order of the ranks."""
    ranks = {raw: rank for rank, raw in enumerate(token_bytes)}
    longer = ((rank, raw) for rank, raw in enumerate(token_bytes) if len(raw) > 1)
    made = (_parts(raw, rank, ranks) for rank, raw in longer)
    return tuple((parts[0], parts[1]) for parts in made if len(parts) == 2)


def stand_in_merges() -> tuple[tuple[bytes, bytes], ...]:
    """The merges that form stand-ins, before all others: a single byte of a stand-in is no
    token."""
    letters = [stand_in(byte).encode() for byte in range(0x80, 0x100)]
    return tuple(dict.fromkeys((raw[:n], raw[n : n + 1]) for n in (1, 2, 3) for raw in letters))


def both_spellings(pair: tuple[bytes, bytes]) -> Iterator[tuple[bytes, bytes]]:
    """A merge, and its form in stand-ins if it ends inside a character."""
    yield pair
    whole = b"".join(pair)
    first, second = map(spelled, pair)
    if not is_whole(whole) and first + second == spelled(whole):
        yield first.encode(), second.encode()


def _parts(raw: bytes, below: int, ranks: dict[bytes, int]) -> list[bytes]:
    """The parts of the bytes after all merges of a lower rank (5 µs)."""
    rank = ranks.get
    parts = [raw[n : n + 1] for n in range(len(raw))]
    pairs = [rank(raw[n : n + 2], below) for n in range(len(raw) - 1)]
    while pairs and (least := min(pairs)) < below:
        n = pairs.index(least)
        whole = parts[n] + parts[n + 1]
        parts[n : n + 2] = [whole]
        del pairs[n]
        if n:
            pairs[n - 1] = rank(parts[n - 1] + whole, below)
        if n < len(pairs):
            pairs[n] = rank(whole + parts[n + 1], below)
    return parts

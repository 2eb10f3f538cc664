"""Rows of the demo's vocabulary that no training holds one by one: made from what a token spells.

A token's picture is a row of signs that a hash draws: most of it from its word, whatever the case
and the blank before it, the rest from the token itself. Four small matrices, which training finds,
turn pictures and properties into the rows of both vocabulary matrices. So the model can copy any
token, and needs no weights for it. Knows bytes and numpy only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

WIDTH = 128
WORD, OWN = 0.8, 0.45
"""The shares of the word and of the token itself in a picture."""
PROPERTIES = 10
MADE = ("made.embed", "made.head", "made.embed_properties", "made.head_properties")
"""The tensors: the matrices of pictures, then those of properties, for the first vocabulary matrix
and for the last."""


def pictures(tokens: Sequence[bytes]) -> Floats:
    """The picture of each token, [tokens, WIDTH]."""
    words = _signs(b"word " + word(token) for token in tokens)
    own = _signs(b"token " + token for token in tokens)
    return WORD * words + OWN * own


def properties(tokens: Iterable[bytes]) -> Floats:
    """What can be seen of each token, [tokens, PROPERTIES] of 0 and 1; the first is always 1."""
    return np.array([_properties(token) for token in tokens], np.float32)


def word(token: bytes) -> bytes:
    """The word that a token spells, without case and blanks; else the token."""
    try:
        return token.decode().strip().lower().encode() or token
    except UnicodeDecodeError:
        return token


def _signs(keys: Iterable[bytes]) -> Floats:
    digests = b"".join(hashlib.blake2b(key, digest_size=WIDTH // 8).digest() for key in keys)
    bits = np.unpackbits(np.frombuffer(digests, np.uint8)).reshape(-1, WIDTH)
    return bits.astype(np.float32) * 2 - 1


def _properties(token: bytes) -> tuple[bool, ...]:
    text = token.decode("utf-8", "replace")
    bare = text.strip()
    return (
        True,
        text[:1] == " ",
        bare[:1].isupper(),
        bare.isalpha(),
        bare.isdecimal(),
        not any(map(str.isalnum, bare)),
        not bare.isascii(),
        len(bare) > 4,
        bare[1:].isupper(),
        text[:1].isspace() and text[:2] != f" {bare[:1]}",
    )

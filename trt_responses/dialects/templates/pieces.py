"""Rendered text in pieces: marks, white space, and other text.

A mark is what looks like one: `<tool_call>`, `[/INST]`. No ids and no vocabulary here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

_ODD = r"\]<\]minimax\[>\[|[\[\]](?:~!?b|e~)[\[\]]|<\|(?:open|close)\|>[^<]*<\|sep\|>"
"""Marks of MiniMax and Kimi."""
_PIECE = re.compile(rf"\s+|{_ODD}|<[^<>\n]*>?|\[/?[A-Z][A-Z_]*\]|[^<\s\[\]]+|[\[\]]")
_MARK = re.compile(rf"{_ODD}|<[^<>\n]*|\[/?[A-Z_]+\]")
_LIST_OPEN, _LIST_CLOSE = re.compile(r"\s*\[\s*\Z"), re.compile(r"\A\s*\](?!<\])\s*")


CALL_ID = "call00000"
"""Stands for a call's id in a form: nine letters and digits, as Mistral's templates require."""


def core(mark: str) -> str:
    """A section's mark without white space and the brackets of a list."""
    return _LIST_CLOSE.sub("", _LIST_OPEN.sub("", mark)).strip()


def pieces(text: str) -> list[str]:
    """The text in pieces: white space, marks, and other text."""
    return _PIECE.findall(text)


def is_mark(piece: str) -> bool:
    """Whether a piece looks like a mark and not like text."""
    return _MARK.match(piece) is not None


def common(one: Sequence[str], two: Sequence[str]) -> list[str]:
    """The pieces in which two sequences begin alike."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False))
    return [piece for piece, _ in same]

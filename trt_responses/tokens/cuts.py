"""Finds places where a text may be cut before it is tokenised.

openai-harmony splits a text into o200k's pre-tokens by a regular expression and merges each one
alone. A text may be cut only where that expression would cut it too. The places found here are
cheap to find and valid in any context.
"""

from __future__ import annotations

import re

BLOCK = 64
"""A pre-token of 2 × BLOCK + 4 characters or more fills an aligned block with one class."""

_PUNCTUATION = r"!-&(-/:-@\[-`{-~、-〃〈-】！-／：-＠‐-‧"
_LETTERS = r"A-Za-zА-яぁ-ゖァ-ヺ一-鿋가-힣"
_HOMOGENEOUS = re.compile(rf"[^\s0-9'{_PUNCTUATION}]{{{BLOCK}}}|[^0-9{_LETTERS}]{{{BLOCK}}}")
_LAST_CUT = re.compile(
    # No alternative of the expression matches or looks ahead across these.
    rf".*(?:\S(?=[ \t])|[{_LETTERS}](?=[0-9{_PUNCTUATION}])|[0-9](?=[{_LETTERS}{_PUNCTUATION}])"
    rf"|\n(?=[0-9{_LETTERS}]))",
    re.DOTALL,
)


def has_long_run(text: str, start: int, stop: int) -> bool:
    """Whether the stretch may contain a pre-token of more than 2 × BLOCK + 4 characters."""
    match = _HOMOGENEOUS.match
    return any(match(text, at, stop) for at in range(start, stop, BLOCK))


def last_cut(text: str, start: int, stop: int) -> int:
    """The last place in the stretch where a cut is certainly valid, or `start`."""
    cut = _LAST_CUT.match(text, start, stop)
    return cut.end() if cut else start

"""Neutralises texts of web pages: no browser marks, no control tokens, no invisible characters.

A page with `【3†L1】` could forge a source, and invisible letters could pass hidden text to the
model. The text stays readable.
"""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
"""Control characters, zero-width letters, direction marks and tags, but not emoji's joiner."""
_LIKE_MARKS = str.maketrans({"【": "〖", "】": "〗", "◼": "◾"})
CONTROL = re.compile(r"<(?=\|)|(?<=\|)>")
"""The angle brackets of `<|start|>` and similar spellings."""


def harmless(text: str) -> str:
    """The text without parts that look like the browser's marks or Harmony's control tokens."""
    return CONTROL.sub("¦", _UNSEEN.sub("", text).translate(_LIKE_MARKS))


def label(text: str, most: int = 200) -> str:
    """A text for a heading or a link: one line of limited length, without the mark's divider."""
    line = " ".join(harmless(text[: 4 * most]).replace("†", "‡").split())
    return line if len(line) <= most else line[: most - 1] + "…"

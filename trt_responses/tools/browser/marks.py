"""Texts of strangers, made harmless: no mark of ours, no control spelling, nothing unseen.

A page that held `【3†L1】` could forge a source; one with invisible letters could tell the model
what no reader sees. What is shown stays readable.
"""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u180e\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
"""Control characters, letters without width, turns of direction, tags; not the joiner of emoji."""
_LIKE_MARKS = str.maketrans({"【": "〖", "】": "〗", "◼": "◾"})
_CONTROL = re.compile(r"<(?=\|)|(?<=\|)>")
"""Of `<|start|>` and its like, in any case and however they are joined to other letters."""


def harmless(text: str) -> str:
    """The text without what could be taken for the browser's own or for Harmony's."""
    return _CONTROL.sub("¦", _UNSEEN.sub("", text).translate(_LIKE_MARKS))


def label(text: str, most: int = 200) -> str:
    """A text for a heading or a link: one line, bounded, and without the mark's divider."""
    told = " ".join(harmless(text[: 4 * most]).replace("†", "‡").split())
    return told if len(told) <= most else told[: most - 1] + "…"

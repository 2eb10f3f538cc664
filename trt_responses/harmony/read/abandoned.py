"""Headers that ended without `<|message|>`: which fault that is, and whether a message is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trt_responses.tokens.vocabulary import FIRST_CONTROL_ID

if TYPE_CHECKING:
    from trt_responses.harmony.read.headers import Header
    from trt_responses.language.fragments import RepairKind

Ending = Literal["terminator", "start", "too_long", "stopped", "cut"]
"""What but `<|message|>` can end a header."""


def fault(words: list[int], how: Ending, structured: bool) -> RepairKind:
    """What was wrong with a header that ended without `<|message|>`."""
    if how in ("stopped", "cut") and (structured or not words):
        return "cut_header"
    if not words:
        return "stray_control"
    if structured:
        return "malformed_header"
    return "stray_text" if min(words) < FIRST_CONTROL_ID else "stray_control"


def is_message(header: Header, how: Ending, structured: bool) -> bool:
    """Whether such a header is told as a message: for its text, or as a call without arguments."""
    if how == "too_long":
        return True
    if how == "cut" and structured:
        return False
    return bool(header.text.strip()) or (how == "terminator" and bool(header.opened.recipient))

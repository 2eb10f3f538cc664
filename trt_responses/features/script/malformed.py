"""Harmony as models get it wrong: well-formed text in, one shape's fault in it out."""

from __future__ import annotations

import re
from random import Random

ANY = "any"
_START = r"<\|start\|>assistant"
_NEXT = rf"<\|end\|>{_START}"
_HEAD = r"<\|channel\|>(\w+)"

SHAPES = {
    "analysis_call": (r"commentary( to=)", r"analysis\1"),
    "answer_in_analysis": (r"<\|channel\|>final", "<|channel|>analysis"),
    "answer_in_commentary": (r"<\|channel\|>final", "<|channel|>commentary"),
    "bare_recipient": (r"to=functions\.", "to="),
    "broken_arguments": (r"\}(<\|call\|>)", r"\1"),
    "call_ended_by_end": (r"<\|call\|>", "<|end|>"),
    "call_ended_by_return": (r"<\|call\|>", "<|return|>"),
    "channel_without_name": (_HEAD, "<|channel|>"),
    "code_for_json": (r"<\|constrain\|>json", "code"),
    "dashes_before_channel": (r"<\|channel\|>", "---<|channel|>"),
    "doubled_author": (r"\A", "assistant"),
    "doubled_channel": (_HEAD, r"<|channel|>\1<|channel|>\1"),
    "doubled_end": (r"<\|(end|return)\|>", r"<|\1|><|\1|>"),
    "doubled_start": (r"\A", "<|start|>assistant"),
    "fenced_arguments": (r"(json<\|message\|>)(.*?)(<\|call\|>)", r"\1```json\n\2\n```\3"),
    "hard_space_behind_recipient": (r"(to=\S+) ", "\\1\u00a0"),
    "header_in_words": (r"<\|channel\|>(\w+)[^<]*<\|message\|>", r"\1 message: "),
    "narrow_space_behind_recipient": (r"(to=\S+) ", "\\1\u202f"),
    "no_channel": (r"<\|channel\|>[^<]*", ""),
    "no_end": (r"<\|(end|return|call)\|>\Z", ""),
    "no_header": (r"\A.*?<\|message\|>", ""),
    "no_message": (r"<\|message\|>", ""),
    "no_start": (_NEXT, "<|end|>"),
    "no_terminator": (_NEXT, "<|start|>assistant"),
    "odd_channel": (r"<\|channel\|>final", "<|channel|>finale"),
    "recipient_before_channel": (r"(<\|channel\|>\w+)( to=\S+)", r"\2\1"),
    "repeated_recipient": (r"( to=\S+)", r"\1\1"),
    "text_behind_end": (r"(<\|(?:end|return|call)\|>)", r"\1 Well."),
    "unknown_recipient": (r"to=functions\.", "to=functions.no_"),
}
"""The name of each shape, and what takes the place of what, where it stands first."""


def malformed(shape: str, text: str, seed: int) -> str:
    """The text with the fault. `any`: one of those that change this text, drawn by the seed."""
    changed = {name: re.sub(*parts, text, count=1, flags=re.S) for name, parts in SHAPES.items()}
    if shape == ANY:
        shape = Random(seed).choice([name for name, each in changed.items() if each != text])
    return changed[shape]

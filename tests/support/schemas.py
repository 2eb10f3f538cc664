"""Schemas and texts for tests: what a form makes of a text, and a walk through its guide."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from llguidance import LLMatcher

from trt_responses.schema.compile import Forms
from trt_responses.schema.matching import LIMITS, json_grammar, single_bytes

if TYPE_CHECKING:
    from random import Random

    from trt_responses.schema.compile import Form

PLACE = "text.format.schema"


def form(schema: Any, *, strict: bool = True) -> Form:
    return Forms(cached=1).form(schema, PLACE, strict=strict)


def verdict(form: Form, text: str, size: int = 7) -> str:
    """What becomes of a text that is fed in pieces: followed, cut, departed, or a place."""
    follower = form.follow()
    raw = text.encode("utf-8", "surrogatepass")
    for begin in range(0, len(raw), size):
        if not follower.feed(raw[begin : begin + size]):
            return "departed"
    if not follower.whole:
        return "cut"
    departure = follower.departure()
    return "followed" if departure is None else f"judged {departure}"


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def walk(form: Form, random: Random, most: int = 300) -> str | None:
    """A text of random allowed bytes, as an engine writes it; None when it comes to no end."""
    guide = LLMatcher(
        single_bytes().tokeniser, json_grammar(json.loads(form.source)), limits=LIMITS
    )
    text = bytearray()
    for count in range(most):
        bits = np.unpackbits(np.frombuffer(guide.compute_bitmask(), np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits[:257])
        if 256 in allowed and (count > most // 2 or len(allowed) == 1 or random.random() < 0.3):
            return text.decode("utf-8", "replace")
        choices = [n for n in allowed.tolist() if n != 256]
        if closing := [n for n in choices if n in b'"]}']:
            choices = closing if count > most // 3 or random.random() < 0.3 else choices
        byte = random.choice([n for n in choices if n not in b" \t\r\n"] or choices)
        guide.consume_token(byte)
        text.append(byte)
    return None

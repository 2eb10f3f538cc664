"""Replaces phrases of nearly every body and item by one byte each, since short data compresses
badly.

orjson writes no byte below a space, so such bytes can represent phrases; data that contains one is
left unchanged. Part of the format: stored data cannot be read with other phrases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trt_responses.store import Kind

Phrase = tuple[bytes, bytes]
"""The byte, and the phrase that it represents."""

BODY: Sequence[Phrase] = (
    (b"\1", b'","status":"completed","output":[],"completed_at":'),
    (b"\2", b',"error":null,"incomplete_details":null,"usage":{"input_tokens":'),
    (b"\3", b',"input_tokens_details":{"cached_tokens":'),
    (b"\4", b',"cache_write_tokens":0},"output_tokens_details":{"reasoning_tokens":'),
    (b"\5", b'}},"previous_response_id":'),
)

STATED = (b"\6", b'","status":"completed"}')
ANSWERED = (
    b"\7",
    b'","annotations":[],"logprobs":[],"type":"output_text"}],"role":"assistant","type":"message"}',
)

ITEMS: Mapping[Kind, Sequence[Phrase]] = {
    "user": ((b"\x0e", b'{"type":"message","role":"user","content":"'), STATED),
    "reasoning": (
        (b"\x0f", b'","status":"completed","content":[{"text":"'),
        (b"\x10", b'","type":"reasoning_text"}],"summary":[],"type":"reasoning"}'),
    ),
    "preamble": (
        (b"\x11", b'","phase":"commentary","status":"completed","content":[{"text":"'),
        ANSWERED,
    ),
    "final": (
        (b"\x12", b'","phase":"final_answer","status":"completed","content":[{"text":"'),
        ANSWERED,
    ),
    "call": ((b"\x13", b'","status":"completed","type":"function_call"}'),),
    "result": ((b"\x14", b'{"type":"function_call_output","call_id":"'), STATED),
}
"""The phrases of items. Keep them few: a search costs the same whether the phrase occurs or not."""

PHRASES = tuple(dict.fromkeys((*BODY, *(phrase for each in ITEMS.values() for phrase in each))))
CODES = b"".join(code for code, _ in PHRASES)


def brief(data: bytes, phrases: Sequence[Phrase]) -> bytes | None:
    """The data with phrases replaced; None if it contains a byte that represents a phrase."""
    if len(data.translate(None, CODES)) != len(data):
        return None
    for code, phrase in phrases:
        data = data.replace(phrase, code, 1)  # no phrase occurs twice
    return data


def full(data: bytes) -> bytes:
    """Undo `brief`."""
    for code, phrase in PHRASES:
        data = data.replace(code, phrase)
    return data

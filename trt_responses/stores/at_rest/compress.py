"""Compresses stored bytes where that helps, and leaves out parts that are stored elsewhere.

Works on bytes: no blocks and no store. The event loop is never blocked for long: large data goes to
a thread, where zlib releases the GIL.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence
from struct import Struct

from trt_responses.stores.at_rest.phrases import BODY, Phrase, brief, full

LEVEL, WINDOW_BITS, MEMORY = 1, 12, 5
"""zlib's settings: the fastest level, with 32 kB of memory instead of 270: as small, and faster."""
SMALL_BYTES = 768
"""Data up to this size is not compressed: zlib would take 20 µs to save two hundred bytes."""
LARGE_BYTES = 64 * 1024
"""Larger data goes to a thread: packing it takes more than about a millisecond."""

DEFLATED, AS_IT_IS = b"z", b"="
CUT = Struct("<i?")
"""The head of shortened data: the place of the omitted part, and whether it uses phrases."""
NOWHERE = -1
UNCUT = CUT.pack(NOWHERE, False)[:-1]

WORDS = (
    b'{"id":"resp_","created_at":17,"model":"","status":"failed","output":[],"completed_at":null,'
    b'"error":{"code":"server_error","message":""},"incomplete_details":{"reason":'
    b'"max_output_tokens"},"usage":null,"background":true,"metadata":{},"tools":[{"type":"function",'
    b'"name":"","description":"","strict":false,"parameters":{"type":"object","properties":{'
    b'"type":"string"},"required":[],"additionalProperties":false}}],"call_id":"call_",'
    b'"arguments":"{\\"","status":"completed","type":"function_call","type":'
    b'"function_call_output","output":"","type":"message","role":"user","content":"","id":"rs_",'
    b'"status":"completed","content":[{"text":"","type":"reasoning_text"}],"summary":[],"type":'
    b'"reasoning"}{"id":"msg_","phase":"final_answer","status":"completed","content":[{"text":"",'
    b'"annotations":[],"logprobs":[],"type":"output_text"}],"role":"assistant","type":"message"}'
    b'"status":"completed","output":[],"completed_at":17,"error":null,"incomplete_details":null,'
    b'"usage":{"input_tokens":0,"output_tokens":0,"total_tokens":0,"input_tokens_details":{'
    b'"cached_tokens":0,"cache_write_tokens":0},"output_tokens_details":{"reasoning_tokens":0}},'
    b'"background":false,"frequency_penalty":0.0,"instructions":null,"max_output_tokens":null,'
    b'"max_tool_calls":null,"metadata":{},"parallel_tool_calls":false,"presence_penalty":0.0,'
    b'"previous_response_id":null,"prompt_cache_key":null,"reasoning":{"effort":null,"summary":null'
    b'},"safety_identifier":null,"service_tier":"default","store":true,"temperature":1.0,"text":{'
    b'"format":{"type":"text"},"verbosity":"medium"},"tool_choice":"auto","tools":[],'
    b'"top_logprobs":0,"top_p":1.0,"truncation":"disabled","object":"response"}'
)
"""zlib's dictionary: text that most stored data repeats. Part of the format: stored data cannot be
read with another one."""


def squeeze(data: bytes) -> bytes:
    """The data, compressed if that helps."""
    return DEFLATED + _deflated(data) if len(data) > SMALL_BYTES else AS_IT_IS + data


def stretch(data: bytes) -> bytes:
    """Undo `squeeze`."""
    if data[:1] not in (DEFLATED, AS_IT_IS):
        raise ValueError("it is truncated")
    return _inflated(data[1:]) if data[:1] == DEFLATED else data[1:]


def leave_out(whole: bytes, known: bytes, phrases: Sequence[Phrase] = BODY) -> bytes:
    """Compress data without the part `known`, which the caller passes again to `put_back`."""
    at = whole.find(known) if known else NOWHERE
    rest = whole if at == NOWHERE else whole[:at] + whole[at + len(known) :]
    shorter = brief(rest, phrases) if phrases else None
    return CUT.pack(at, shorter is not None) + squeeze(rest if shorter is None else shorter)


def is_whole(data: bytes) -> bool:
    """Whether no part was left out."""
    return data[: CUT.size - 1] == UNCUT


def put_back(data: bytes, known: bytes) -> bytes:
    """Undo `leave_out`."""
    if len(data) < CUT.size:
        raise ValueError("it is truncated")
    at, is_brief = CUT.unpack_from(data)
    rest = stretch(data[CUT.size :])
    rest = full(rest) if is_brief else rest
    return rest if at == NOWHERE else b"".join((rest[:at], known, rest[at:]))


_READY = zlib.compressobj(LEVEL, zlib.DEFLATED, -WINDOW_BITS, MEMORY, zdict=WORDS)


def _deflated(data: bytes) -> bytes:
    ready = _READY.copy()  # with the dictionary loaded
    return ready.compress(data) + ready.flush()


def _inflated(data: bytes) -> bytes:
    reading = zlib.decompressobj(-WINDOW_BITS, WORDS)
    whole = reading.decompress(data)
    if not reading.eof or reading.unused_data:
        raise ValueError("it is truncated, or has data after its end")
    return whole


async def gently(work: Callable[..., bytes], data: bytes, *like: bytes) -> bytes:
    """The result of `work` on the data; in a thread if the data is large."""
    if len(data) > LARGE_BYTES:
        return await asyncio.to_thread(work, data, *like)
    return work(data, *like)

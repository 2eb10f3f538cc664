"""The compressions of requests and replies: gzip and deflate, as Triton's client uses them."""

from __future__ import annotations

import zlib

from trt_responses.errors import InvalidRequest
from trt_responses.web.body import too_large


def inflated(body: bytes, coding: str, at_most: int) -> bytes:
    """A body without its compression, up to the bound of every body."""
    windows = {"gzip": 31, "deflate": 15}
    if (window := windows.get(coding.strip().lower())) is None:
        raise InvalidRequest(f"Content-Encoding {coding!r:.40} is not known: use gzip or deflate")
    inflater = zlib.decompressobj(window)
    try:
        whole = inflater.decompress(body, at_most + 1)
    except zlib.error as error:
        raise InvalidRequest(f"The body is no {coding:.40}: {error}") from None
    if len(whole) > at_most:
        raise too_large(f"{at_most} bytes (TRT_RESPONSES_MAX_BODY_BYTES)")
    if not inflater.eof or inflater.unused_data:
        raise InvalidRequest(f"The body is no {coding:.40} of one piece")
    return whole


def reply_coding(accepted: str) -> str | None:
    """The first coding that a client accepts and this server has."""
    names = [part.partition(";")[0].strip().lower() for part in accepted.split(",")]
    return next((name for name in names if name in ("gzip", "deflate")), None)


def deflated(body: bytes, coding: str) -> bytes:
    """A body compressed in this coding."""
    deflater = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    return deflater.compress(body) + deflater.flush()

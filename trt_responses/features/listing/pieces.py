"""What is read from a disk in threads, and closed as soon as its reader has left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from threading import Lock

SENT_BYTES = 128 * 1024
"""A client that has left keeps one of these until Python next looks for cycles."""


async def in_threads(pieces: Generator[bytes]) -> AsyncGenerator[bytes]:
    """The pieces, each read in a thread and given in parts. The generator is closed at the end."""
    reading = Lock()

    def following() -> bytes | None:
        with reading:
            return next(pieces, None)

    def close() -> None:
        with reading:  # the last read may still be under way
            pieces.close()

    piece: bytes | None = None
    try:
        while (piece := await asyncio.to_thread(following)) is not None:
            for at in range(0, len(piece), SENT_BYTES):
                yield piece[at : at + SENT_BYTES]
    finally:
        piece = None
        asyncio.get_running_loop().run_in_executor(None, close)

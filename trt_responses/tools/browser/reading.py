"""Parses documents, each in its own sandboxed process with a deadline and limits.

The result is untrusted: its size is limited here, and only its text is used.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trt_responses.children import main_of
from trt_responses.frozen import dataclass
from trt_responses.tasks import beside
from trt_responses.tools.browser.page import Page

if TYPE_CHECKING:
    from trt_responses.tools.fetch_guard import Document

ANSWER_BYTES = 32 * 1024 * 1024
MAX_LINES = 20_000
"""Lines of one page: each `find` goes through all of them on the event loop."""


class Unreadable(Exception):
    """A document cannot be read; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Limits and settings of parsing."""

    deadline_s: float = 10.0
    memory_bytes: int = 768 * 1024 * 1024
    at_once: int = 4
    boxed: bool = True


class Reader:
    """Parses documents, a few at once."""

    def __init__(self, how: Reading) -> None:
        self._how = how
        self._places = asyncio.Semaphore(how.at_once)
        self.running = 0
        """The number of documents in progress."""

    async def read(self, document: Document) -> Page:
        """The page of a document. Raises `Unreadable`."""
        async with self._places:
            self.running += 1
            try:
                async with asyncio.timeout(self._how.deadline_s):
                    answer = await self._answer(document)
            except TimeoutError:
                seconds = f"{self._how.deadline_s:g} seconds"
                raise Unreadable(f"it could not be read within {seconds}") from None
            finally:
                self.running -= 1
        read = await asyncio.to_thread(_read, answer)
        lines = read["lines"][:MAX_LINES]
        return Page(
            document.url,
            read["title"] or _name(document.url),
            (f"URL: {document.url}", "", *lines),
            tuple(read["links"]),
            cut=bool(read["cut"] or document.cut or len(read["lines"]) > MAX_LINES),
        )

    async def _answer(self, document: Document) -> bytes:
        how = self._how
        request = {
            "boxed": how.boxed,
            "memory_bytes": how.memory_bytes,
            "seconds": int(how.deadline_s) + 1,
            "parent": os.getpid(),
        }
        process = await asyncio.create_subprocess_exec(
            *main_of("trt_responses.tools.browser.parser"),
            json.dumps(request),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"LANG": "C.UTF-8"},
            start_new_session=True,
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            facts = {
                "url": document.url,
                "kind": document.content_type,
                "charset": document.charset,
            }
            data = json.dumps(facts).encode() + b"\n" + document.body
            async with beside(_write(process.stdin, data)):
                answer = await _all(process.stdout)
            await process.wait()  # `kill` polls it, and takes its end away from asyncio's watcher
            return answer
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _write(pipe: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(ConnectionError):
        pipe.write(data)
        await pipe.drain()
        pipe.close()


async def _all(pipe: asyncio.StreamReader) -> bytes:
    data = bytearray()
    while piece := await pipe.read(1 << 18):
        data += piece
        if len(data) > ANSWER_BYTES:
            raise Unreadable("it is too large")
    return bytes(data)


def _read(answer: bytes) -> dict[str, Any]:
    """The parsed output of the process. Raises `Unreadable`."""
    try:
        read = json.loads(answer)
    except ValueError:
        raise Unreadable("its text needs too much memory or time") from None
    if not isinstance(read, dict) or "why" in read:
        why = read.get("why") if isinstance(read, dict) else None
        raise Unreadable(str(why or "it has no text")[:500])
    return read


def _name(url: str) -> str:
    return url.split("?")[0].rstrip("/").rpartition("/")[2] or url

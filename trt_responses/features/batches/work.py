"""What a batch has answered so far, on the disk of the uploaded files: a line for each answer.

Each server that has the batch writes a file of its own and reads those of the servers before it.
Blocks; belongs in threads.
"""

from __future__ import annotations

import base64
import logging
import os
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from threading import Lock
from typing import IO, Any

import orjson

from trt_responses.errors import ApiError
from trt_responses.features.files.files import WORK, Files

logger = logging.getLogger(__name__)


class Work:
    """The answers to one batch's requests, by their numbers."""

    def __init__(self, files: Files, owner: str, batch_id: str, term: int) -> None:
        self._files = files
        self._owner = owner
        self._path = files.place(owner) / f"{batch_id}.{term}{WORK}"
        self._every = f"{batch_id}.*{WORK}"
        self._earlier = sorted(self._path.parent.glob(self._every))
        self.failed: dict[int, bool] = {}
        """Whether each request that was answered has failed."""
        self.tokens = Counter[str]()
        """Of all answers, by name."""
        try:
            for row in self._rows(self._earlier):
                self._note(row["number"], row["failed"], row.get("tokens", {}))
        except (ApiError, ValueError) as fault:  # a key is missing, or the disk has damaged it
            logger.warning("answers of %s are made again: %s", batch_id, fault)
            self._earlier = []
            self.failed.clear()
            self.tokens.clear()
        self._file: IO[bytes] | None = None
        self._closed = False
        self._lock = Lock()

    def add(self, number: int, failed: bool, line: bytes, tokens: Mapping[str, int]) -> None:
        """Keep an answer, as its line of a file, and the tokens that it took by name: when this
        returns, no server makes it again."""
        row = {"number": number, "failed": failed, "line": line.decode(), "tokens": tokens}
        sealed = self._files.sealed(orjson.dumps(row), self._path, 0)
        with self._lock:
            if self._closed:  # while a thread had this answer still
                return
            if self._file is None:
                self._file = self._path.open("ab")
            self._file.write(base64.b64encode(sealed) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
            self._note(number, failed, tokens)

    def _note(self, number: int, failed: bool, tokens: Mapping[str, int]) -> None:
        if number not in self.failed:
            self.failed[number] = failed
            self.tokens.update(tokens)

    def write_out(
        self, name: str, age_s: int | None, *, failed: bool, more: Iterable[bytes] = ()
    ) -> str | None:
        """The id of a file with all answers that have failed, or have not, and `more` lines; None
        without any."""
        more = iter(more)
        if (first := next(more, None)) is None and failed not in self.failed.values():
            return None
        incoming, seen = self._files.new(self._owner, bounded=False, maker=name), set[int]()
        try:
            for row in self._rows([*self._earlier, self._path]):
                if row["failed"] == failed and row["number"] not in seen:
                    seen.add(row["number"])
                    incoming.write(row["line"].encode() + b"\n")
            for line in chain([] if first is None else [first], more):
                incoming.write(line + b"\n")
            kept = incoming.keep(name, "batch_output", age_s)
        finally:
            incoming.drop()
        return str(kept["id"])

    def close(self, *, whole: bool) -> None:
        """`whole`: nothing of it is needed any more. Takes no longer than one answer."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._file.close()
        for path in self._path.parent.glob(self._every) if whole else ():
            path.unlink(missing_ok=True)

    def _rows(self, paths: Iterable[Any]) -> Iterator[dict[str, Any]]:
        for path in paths:
            with suppress(FileNotFoundError), path.open("rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # its server died while it wrote
                    yield orjson.loads(self._files.opened(base64.b64decode(line), path, 0))


def lines_of(pieces: Iterable[bytes], most_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not empty, each with its place in the file; one that is too long
    is cut, and is no JSON then."""
    left, place = b"", 1
    for piece in pieces:
        *whole, left = (left + piece).split(b"\n")
        left = left[: most_bytes + 1]
        for number, line in enumerate(whole, place):
            if text := line.removeprefix(BOM_UTF8).strip():
                yield number, text[: most_bytes + 1]
        place += len(whole)
    if text := left.removeprefix(BOM_UTF8).strip():
        yield place, text

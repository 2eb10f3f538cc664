"""Uploaded files, each one file of a folder: its content, then its facts as the API gives them.

Servers that share the folder share the files. A file appears by a rename, whole or not at all.
Where the store is encrypted, content and facts are sealed with the store's keys. Knows no HTTP; all
of it blocks, and belongs in a thread.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import orjson

from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.files import make_private
from trt_responses.frozen import dataclass
from trt_responses.tools.containers import Upload

Facts = dict[str, Any]
"""A file as the API gives it."""

BLOCK_BYTES = 1024 * 1024
"""Of a file that is sealed, read or written at once."""
LOOK_BLOCKS = 16
"""Blocks between two looks at what the owner's other files take by now."""
MOST_FILES = 1000
"""Of one owner: a list reads the end of each."""
LENGTH = 4
ABANDONED_S = 3600.0
"""Age of a part of an upload whose server must have died: a client is silent for a minute at
most."""
NAME = re.compile(r"file-[0-9a-f]{24}")
PART, WORK = ".part", ".work"
"""Endings of files that arrive, and of those that batches write while they are made."""
WORK_S = 3 * 86_400.0
"""Age of a batch's file whose batch must have ended: its window is a day."""
NAME_BYTES = 255
SHORTEST_S, LONGEST_S = 3600, 2_592_000
"""As the API has it: when a client may have a file expire."""


@runtime_checkable
class Sealing(Protocol):
    """The keys of an encrypted store."""

    @property
    def newest(self) -> Any:
        """Seals; None: nothing is sealed any more."""
        ...

    def open(self, sealed: bytes, bound: bytes, name: str) -> bytes: ...


@runtime_checkable
class Retaining(Protocol):
    """Says for how many seconds the data of some owners are kept."""

    def kept_s(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of files."""

    owner_bytes: int
    age_s: float


class Files:
    """The files of all owners."""

    kept = "files"

    def __init__(
        self,
        folder: Path,
        bounds: Bounds,
        clock_s: Callable[[], float],
        keys: Sealing | None = None,
        kept_s: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.bounds = bounds
        self.keys = keys
        self.clock_s = clock_s
        self._folder = folder
        self._kept_s = kept_s

    def new(self, owner: str, *, bounded: bool = True, maker: str = "") -> Incoming:
        """A file that is about to arrive. The caller must `keep` or `drop` it. `bounded`: the
        owner's other files leave room for it. `maker`: a unique name of what makes it, perhaps
        again: then it takes the place of the first."""
        if self._kept_s().get(owner) == 0:
            raise InvalidRequest("Nothing of this key's owner is stored.", code="zero_retention")
        return Incoming(self, self.place(owner), maker, bounded=bounded)

    def place(self, owner: str) -> Path:
        """The folder of an owner's files."""
        make_private(place := self._of(owner))
        return place

    def facts(self, owner: str, file_id: str) -> Facts:
        """Raises an `InvalidRequest` of status 404 for a file that this owner does not have."""
        found = self._read(self._of(owner) / file_id) if NAME.fullmatch(file_id) else None
        if found is None or self._is_due(found, self._kept_s().get(owner)):
            raise InvalidRequest(
                f"No file with the id '{file_id:.100}': it has expired, was deleted, or never "
                "existed.",
                status=404,
                code="file_not_found",
            )
        return found

    def of(self, owner: str) -> list[Facts]:
        """The oldest first."""
        kept_s = self._kept_s().get(owner)
        read = (self._read(path) for path in _paths(self._of(owner)))
        found = [each for each in read if each is not None and not self._is_due(each, kept_s)]
        return sorted(found, key=lambda each: (each["created_at"], each["id"]))

    def content(self, owner: str, file_id: str) -> Generator[bytes]:
        """What is in a file, in pieces."""
        return self._pieces(self._of(owner) / file_id, self.facts(owner, file_id))

    def upload(self, owner: str, file_id: str) -> Upload:
        """A file as containers take it."""
        facts = self.facts(owner, file_id)
        return Upload(file_name(facts["filename"]), facts["bytes"], self.content(owner, file_id))

    def delete(self, owner: str, file_id: str) -> None:
        self.facts(owner, file_id)
        (self._of(owner) / file_id).unlink(missing_ok=True)

    def exported(self, owner: str) -> Generator[bytes]:
        """A line for each file, in pieces: its facts, and its content in base64."""
        for facts in self.of(owner):
            try:
                pieces = self.content(owner, facts["id"])
                left = next(pieces, b"")
            except (InvalidRequest, FileNotFoundError):
                continue  # it has ended since the list was read
            yield b'{"object":%b,"content":"' % orjson.dumps(facts)
            for piece in pieces:
                left += piece
                whole = len(left) - len(left) % 3  # no padding within the text
                yield base64.b64encode(left[:whole])
                left = left[whole:]
            yield base64.b64encode(left) + b'"}\n'

    def erase(self, owner: str) -> int:
        """Delete all files of an owner, and what batches have made of them."""
        paths = _paths(self._of(owner))
        for path in (*paths, *self._of(owner).glob(f"*{WORK}")):
            path.unlink(missing_ok=True)
        return len(paths)

    def sweep(self) -> int:
        """Delete what has expired, and what dead servers left of uploads."""
        deleted, now = 0, self.clock_s()
        kept_s = {_digest(owner): seconds for owner, seconds in self._kept_s().items()}
        folders = self._folder.iterdir() if self._folder.is_dir() else ()
        for place in folders:
            for path in _paths(place):
                with suppress(FileNotFoundError):
                    if self._has_ended(path, kept_s.get(place.name)):
                        path.unlink()
                        deleted += 1
            for ending, age_s in ((PART, ABANDONED_S), (WORK, WORK_S)):
                for left in place.glob(f"*{ending}"):
                    with suppress(FileNotFoundError):
                        if left.stat().st_mtime < now - age_s:
                            left.unlink()
        return deleted

    def _of(self, owner: str) -> Path:
        return self._folder / _digest(owner)

    def _has_ended(self, path: Path, kept_s: int | None) -> bool:
        """One that cannot be read, for want of a key or since it is damaged, ends too."""
        try:
            found = self._read(path)
        except (ApiError, ValueError, OSError):
            made = path.stat().st_mtime
            found = {"created_at": made, "expires_at": made + self.bounds.age_s}
        return found is not None and self._is_due(found, kept_s)

    def _is_due(self, facts: Facts, kept_s: int | None) -> bool:
        due = facts["expires_at"]
        if kept_s is not None:
            due = min(due, facts["created_at"] + kept_s)
        return bool(due <= self.clock_s())

    def _read(self, path: Path) -> Facts | None:
        """The facts at the end of a file; None if there is no such file."""
        try:
            with path.open("rb") as file:
                tail = _tail(file)
        except FileNotFoundError:
            return None
        facts: Facts = orjson.loads(self.opened(tail, path, 0))
        return facts

    def _pieces(self, path: Path, facts: Facts) -> Generator[bytes]:
        with path.open("rb") as file:
            sealed = not _tail(file).startswith(b"{")
            file.seek(0)
            left, number = facts["bytes"], 0
            while left:
                number += 1
                size = min(left, BLOCK_BYTES)
                if sealed:
                    stored = file.read(int.from_bytes(file.read(LENGTH), "big"))
                    piece = self.opened(stored, path, number)
                else:
                    piece = file.read(size)
                left -= size
                yield piece

    def sealed(self, text: bytes, path: Path, number: int) -> bytes:
        """A part of a file as it is stored: itself, where nothing is encrypted."""
        newest = None if self.keys is None else self.keys.newest
        sealed: bytes = text if newest is None else newest.seal(text, bound_to(path, number))
        return sealed

    def opened(self, text: bytes, path: Path, number: int) -> bytes:
        if text.startswith(b"{") and number == 0:
            return text
        if self.keys is None:
            raise InvalidRequest(f"'{path.name}' is encrypted.", status=500)
        return self.keys.open(text, bound_to(path, number), path.name)


class Incoming:
    """A file that arrives. It can be found once it is kept."""

    def __init__(self, files: Files, place: Path, maker: str, *, bounded: bool) -> None:
        self._files = files
        self._bounded = bounded
        token = secrets.token_hex(12)
        self._path = place / f"file-{_digest(maker)[:24] if maker else token}"
        self._part = self._path.with_name(f"{self._path.name}.{token}{PART}")
        self._size = self._blocks = 0
        self._waiting = bytearray()
        self._others = self._usage()
        self._check_number()
        self._file = self._part.open("xb")
        os.fchmod(self._file.fileno(), 0o600)

    def write(self, data: bytes) -> None:
        """Add a piece. Raises an `InvalidRequest` beyond what the owner may have."""
        self._size += len(data)
        most = self._files.bounds.owner_bytes
        if self._bounded and self._others[0] + self._size > most:
            raise _full(f"{most} bytes (TRT_RESPONSES_FILES_BYTES)")
        self._waiting += data
        while len(self._waiting) >= BLOCK_BYTES:
            self._flush()

    def keep(self, name: str, purpose: str, age_s: float | None = None) -> Facts:
        """Let it be found from now on, for `age_s` or as long as the settings say."""
        while self._waiting:
            self._flush()
        files, now = self._files, int(self._files.clock_s())
        seconds = files.bounds.age_s if age_s is None else min(age_s, files.bounds.age_s)
        facts = {
            "id": self._path.name,
            "object": "file",
            "bytes": self._size,
            "created_at": now,
            "expires_at": now + int(seconds),
            "filename": name[:NAME_BYTES],
            "purpose": purpose,
            "status": "processed",
        }
        tail = self._files.sealed(orjson.dumps(facts), self._path, 0)
        self._file.write(tail + len(tail).to_bytes(LENGTH, "big"))
        self._file.flush()
        os.fsync(self._file.fileno())
        with _alone(self._path.parent):
            self._others = self._usage(PART)
            self._check_number()
            self.write(b"")  # files that came at the same time count too
            self._part.rename(self._path)
        self._file.close()
        return facts

    def drop(self) -> None:
        """Forget it, unless it was kept. Idempotent."""
        with suppress(OSError):  # a full disk does not take what was not written yet
            self._file.close()
        self._part.unlink(missing_ok=True)

    def _flush(self) -> None:
        block, self._waiting = bytes(self._waiting[:BLOCK_BYTES]), self._waiting[BLOCK_BYTES:]
        self._blocks += 1
        if self._blocks % LOOK_BLOCKS == 0:
            self._others = self._usage()
        stored = self._files.sealed(block, self._path, self._blocks)
        if stored is not block:
            self._file.write(len(stored).to_bytes(LENGTH, "big"))
        self._file.write(stored)

    def _check_number(self) -> None:
        if self._bounded and self._others[1] >= MOST_FILES:
            raise _full(f"{MOST_FILES} files")

    def _usage(self, but: str = "/") -> tuple[int, int]:
        """The bytes and the number of the owner's other files, those that arrive among them."""
        size = number = 0
        with os.scandir(self._path.parent) as entries:
            for entry in entries:
                if entry.name != self._part.name and not entry.name.endswith(but):
                    with suppress(FileNotFoundError):
                        size, number = size + entry.stat().st_size, number + 1
        return size, number


def file_name(name: str) -> str:
    """An upload's name as a file's in one folder."""
    plain = name.rpartition("/")[2].replace("\0", "_").lstrip(".") or "file"
    return plain.encode("utf-8", "replace")[-NAME_BYTES:].decode("utf-8", "ignore")


def bound_to(path: Path, number: int) -> bytes:
    """What a sealed block, or the facts as number 0, is valid for: its place in this owner's
    file."""
    return f"{path.parent.name}/{path.name}/{number}".encode()


def _tail(file: BinaryIO) -> bytes:
    end = file.seek(-LENGTH, os.SEEK_END)
    size = int.from_bytes(file.read(LENGTH), "big")
    file.seek(end - size)
    return file.read(size)


def _paths(place: Path) -> list[Path]:
    return [path for path in place.glob("file-*") if NAME.fullmatch(path.name)]


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Hold the lock of an owner's folder, against other threads and servers."""
    here = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(here, fcntl.LOCK_EX)
        yield
    finally:
        os.close(here)


def _digest(owner: str) -> str:
    return hashlib.blake2b(owner.encode(), digest_size=16).hexdigest()


def _full(bound: str) -> InvalidRequest:
    return InvalidRequest(
        f"The owner's files would exceed {bound}: delete some.",
        status=413,
        param="file",
        code="files_full",
    )

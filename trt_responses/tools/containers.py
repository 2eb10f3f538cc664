"""The seam of containers: the places in which a tool's calls run, for their owners to see.

A tool that keeps such places has them as `containers`. Knows no tool and no route.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, Protocol

from trt_responses.tool import Opening

NAME_BYTES = 240
"""Of a name that is made longer: a folder takes 255."""


class ContainerFacts(NamedTuple):
    """A container, as its owner sees it."""

    id: str
    name: str
    created_at: int
    last_active_at: int
    idle_s: float
    """It ends when it was unused for so long."""


class FileFacts(NamedTuple):
    """A file of a container, as its owner sees it."""

    id: str
    path: str
    """Below the container's directory."""
    size_bytes: int
    created_at: int
    is_users: bool
    """The owner has added it; else code has written it."""


class WrittenFile(NamedTuple):
    """A file that code has written."""

    container_id: str
    file_id: str
    path: str


class WritesFiles(Protocol):
    """A session whose calls write files that their owner can fetch."""

    @property
    def written(self) -> Sequence[WrittenFile]: ...


class Upload(NamedTuple):
    """An uploaded file, to be copied into a container."""

    name: str
    """A file's name in one folder."""
    size_bytes: int
    pieces: Iterable[bytes]


class Uploads(Protocol):
    """Where uploaded files are kept. It blocks, and belongs in a thread. A file that an owner does
    not have is an `InvalidRequest` of status 404."""

    def upload(self, owner: str, file_id: str) -> Upload: ...


class ContainerFileStore(Protocol):
    """The files of containers, for their owners. A file or a container that an owner does not have
    is an `InvalidRequest` of status 404, even if another has it."""

    async def of(self, owner: str, container_id: str) -> list[FileFacts]:
        """All of one container's, by path."""
        ...

    uploads: Uploads | None
    """None: no uploaded file can be copied into a container."""

    async def add(
        self, owner: str, container_id: str, name: str, data: bytes | Upload
    ) -> FileFacts: ...

    async def check(self, owner: str, file_ids: Sequence[str], place: str) -> None:
        """Raises an `InvalidRequest` if one of these uploaded files cannot be had; `place` is that
        of the ids in the request."""
        ...

    async def copy(self, owner: str, container_id: str, file_id: str) -> FileFacts:
        """Copy an uploaded file into a container, in place of one of its name."""
        ...

    async def copy_all(self, owner: str, container_id: str, file_ids: Sequence[str]) -> None:
        """Copy uploaded files into a container, each by a name of its own."""
        ...

    async def facts(self, owner: str, container_id: str, file_id: str) -> FileFacts: ...

    async def open(self, owner: str, container_id: str, file_id: str) -> int:
        """A descriptor to read from; the caller closes it."""
        ...

    async def delete(self, owner: str, container_id: str, file_id: str) -> None: ...


class ContainerStore(Protocol):
    """The containers of a tool, for their owners to see and to end. A container that an owner does
    not have is an `InvalidRequest` of status 404, even if another has it."""

    @property
    def files(self) -> ContainerFileStore: ...

    async def create(self, owner: str, name: str, idle_s: float | None) -> ContainerFacts: ...

    def facts_of(self, owner: str) -> list[ContainerFacts]:
        """The oldest first."""
        ...

    def facts(self, owner: str, container_id: str) -> ContainerFacts: ...

    async def delete(self, owner: str, container_id: str) -> None: ...


def wanted_files(opening: Opening, container: object) -> Sequence[str]:
    """The uploaded files that a request wants in the container of a tool: all that its messages
    name, else those of the container's own options."""
    own = container.get("file_ids") if isinstance(container, dict) else None
    files: Sequence[str] = opening.options.get("file_ids") or own or ()
    return files


def name_beside(others: Collection[str], name: str, file_id: str) -> str:
    """An uploaded file's name in a folder: with the end of its id, where another has its name."""
    if name not in others:
        return name
    kept = name.encode()[-NAME_BYTES:].decode("utf-8", "ignore")
    return f"{file_id[-8:]}-{kept}"


def containers_of(tools: Iterable[object]) -> ContainerStore | None:
    """The containers of the first tool that keeps some; those of all tools are the same."""
    found = (getattr(tool, "containers", None) for tool in tools)
    return next((each for each in found if each is not None), None)

"""The seam of containers: the places in which a tool's calls run, for their owners to see.

A tool that keeps such places has them as `containers`. Knows no tool and no route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


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


class ContainerFileStore(Protocol):
    """The files of containers, for their owners. A file or a container that an owner does not have
    is an `InvalidRequest` of status 404, even if another has it."""

    async def of(self, owner: str, container_id: str) -> list[FileFacts]:
        """All of one container's, by path."""
        ...

    async def add(self, owner: str, container_id: str, name: str, data: bytes) -> FileFacts: ...

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


def containers_of(tools: Iterable[object]) -> ContainerStore | None:
    """The containers of the first tool that keeps some; those of all tools are the same."""
    found = (getattr(tool, "containers", None) for tool in tools)
    return next((each for each in found if each is not None), None)

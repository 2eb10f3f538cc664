"""The files of containers, as their owners list, bring, fetch and remove them.

Code may be at work in a container meanwhile: `files.py` opens what stands there step by step. Knows
containers; knows no HTTP and no model.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest, invalid_value
from trt_responses.tool import FileFacts
from trt_responses.tools.python import files
from trt_responses.tools.python.container import not_found
from trt_responses.tools.python.directories import usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.tools.python.container import Container
    from trt_responses.tools.python.directories import Usage


class ContainerFiles:
    """Those of all containers of one server."""

    def __init__(
        self,
        find: Callable[[str, str], Container],
        used: Callable[[Container], None],
        disk: Usage,
    ) -> None:
        """`find` gives an owner's container by its id, or raises; a container that is `used` is not
        idle; `disk` is what each may hold."""
        self._find = find
        self._used = used
        self._disk = disk

    async def of(self, owner: str, container_id: str) -> list[FileFacts]:
        container = self._find(owner, container_id)
        found = await asyncio.to_thread(files.found_files, container.directory, self._disk.entries)
        return [_file_facts(container, one) for one in found]

    async def facts(self, owner: str, container_id: str, file_id: str) -> FileFacts:
        return (await self._found(owner, container_id, file_id))[2]

    async def open(self, owner: str, container_id: str, file_id: str) -> int:
        container, path, _ = await self._found(owner, container_id, file_id)
        try:
            return await asyncio.to_thread(files.open_file, container.directory, path)
        except FileNotFoundError:
            raise _no_file(file_id) from None

    async def delete(self, owner: str, container_id: str, file_id: str) -> None:
        container, path, _ = await self._found(owner, container_id, file_id)
        try:
            await asyncio.to_thread(files.remove_file, container.directory, path)
        except FileNotFoundError:
            raise _no_file(file_id) from None
        container.added.discard(path)

    async def add(self, owner: str, container_id: str, name: str, data: bytes) -> FileFacts:
        container = self._find(owner, container_id)
        try:
            added = await asyncio.to_thread(self._add, container, name, data)
        except (OSError, ValueError):
            raise invalid_value(
                "file", f"no file of a container can have the name '{name:.100}'"
            ) from None
        container.added.add(name)
        self._used(container)
        return _file_facts(container, added)

    def _add(self, container: Container, name: str, data: bytes) -> files.FoundFile:
        """Of files that come at once, one is counted and written before the next."""
        with container.changing:
            if container.removed:
                raise not_found(container.id)
            container.directory.mkdir(mode=0o700, exist_ok=True)
            held = usage(container.directory, self._disk)
            most = self._disk
            if held.size_bytes + len(data) > most.size_bytes or held.entries >= most.entries:
                raise InvalidRequest(
                    f"The container has no room for the file: it may hold {most.size_bytes} bytes "
                    f"in {most.entries} files.",
                    param="file",
                    code="container_full",
                )
            return files.add_file(container.directory, name, data)

    async def _found(
        self, owner: str, container_id: str, file_id: str
    ) -> tuple[Container, str, FileFacts]:
        container = self._find(owner, container_id)
        for one in await asyncio.to_thread(
            files.found_files, container.directory, self._disk.entries
        ):
            facts = _file_facts(container, one)
            if facts.id == file_id:
                return container, one.path, facts
        raise _no_file(file_id)


def _file_facts(container: Container, found: files.FoundFile) -> FileFacts:
    """A name need not be text: what is none of it is told as `?` is."""
    raw = os.fsencode(found.path)
    told = hashlib.sha256(container.id.encode() + b"\0" + raw).hexdigest()[:48]
    path = raw.decode("utf-8", "replace")
    is_users = found.path in container.added
    return FileFacts(f"cfile_{told}", path, found.size_bytes, found.modified_at, is_users)


def _no_file(file_id: str) -> InvalidRequest:
    return InvalidRequest(
        f"File with id '{file_id:.100}' not found in the container.",
        status=404,
        code="file_not_found",
    )

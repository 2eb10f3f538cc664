"""The files of containers: owners list, add, read and delete them.

Code may run in the container at the same time, so `files.py` opens paths step by step. Containers
only: no HTTP and no model.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from trt_responses.errors import ApiError, InvalidRequest, invalid_value, unsupported_value
from trt_responses.files import reason
from trt_responses.tools.containers import FileFacts, Upload, Uploads, name_beside
from trt_responses.tools.python import files
from trt_responses.tools.python.container import Container, not_found
from trt_responses.tools.python.directories import Usage, usage

FULL = (errno.ENOSPC, errno.EDQUOT)
PNG = b"\x89PNG\r\n\x1a\n"


class ContainerFiles:
    """The files of all containers of one server."""

    def __init__(
        self,
        find: Callable[[str, str], Container],
        used: Callable[[Container], None],
        disk: Usage,
    ) -> None:
        """`find` returns an owner's container by id, or raises. `used` resets a container's idle
        time.
        `disk`: the limit of each container."""
        self._find = find
        self._used = used
        self._disk = disk
        self.uploads: Uploads | None = None

    async def of(self, owner: str, container_id: str) -> list[FileFacts]:
        return [facts for facts, _ in await self._listed(self._find(owner, container_id))]

    async def facts(self, owner: str, container_id: str, file_id: str) -> FileFacts:
        return (await self._locate(owner, container_id, file_id))[2]

    async def open(self, owner: str, container_id: str, file_id: str) -> int:
        container, path, _ = await self._locate(owner, container_id, file_id)
        try:
            return await asyncio.to_thread(files.open_file, container.directory, path)
        except FileNotFoundError:
            raise _no_file(file_id) from None

    async def delete(self, owner: str, container_id: str, file_id: str) -> None:
        container, path, _ = await self._locate(owner, container_id, file_id)
        try:
            await asyncio.to_thread(files.remove_file, container.directory, path)
        except FileNotFoundError:
            raise _no_file(file_id) from None
        container.added.discard(path)

    async def check(self, owner: str, file_ids: Sequence[str], place: str) -> None:
        if file_ids and self.uploads is None:
            raise unsupported_value(place, "there are no uploaded files here")
        for number, file_id in enumerate(file_ids):
            try:
                await asyncio.to_thread(self._upload, owner, file_id)
            except InvalidRequest as error:
                error.param = f"{place}[{number}]" if place != "file_id" else place
                raise

    async def copy(self, owner: str, container_id: str, file_id: str) -> FileFacts:
        upload = await asyncio.to_thread(self._upload, owner, file_id)
        return await self._copied(self._find(owner, container_id), file_id, upload)

    async def copy_all(self, owner: str, container_id: str, file_ids: Sequence[str]) -> None:
        await self.copy_missing(self._find(owner, container_id), file_ids)

    async def copy_missing(self, container: Container, file_ids: Sequence[str]) -> None:
        """Copy those uploaded files into a container that it has not been given, or has lost."""
        names = set[str]()
        for file_id in dict.fromkeys(file_ids):
            name = container.copied.get(file_id)
            if name is None or name in names or _is_lost(container, name):
                upload = await asyncio.to_thread(self._upload, container.owner, file_id)
                name = name_beside(names, upload.name, file_id)
                await self._copied(container, file_id, upload._replace(name=name))
            names.add(name)

    async def _copied(self, container: Container, file_id: str, upload: Upload) -> FileFacts:
        facts = await self.add(container.owner, container.id, upload.name, upload)
        others = {one: name for one, name in container.copied.items() if name != upload.name}
        container.copied = others | {file_id: upload.name}
        return facts

    def _upload(self, owner: str, file_id: str) -> Upload:
        assert self.uploads is not None, "checked when the request was accepted"
        return self.uploads.upload(owner, file_id)

    async def of_code(self, container: Container) -> dict[FileFacts, files.FoundFile]:
        """The files that code has written and not hidden, each with what any change of it
        changes."""
        return {
            facts: one
            for facts, one in await self._listed(container)
            if not facts.is_users and "/." not in f"/{one.path}"
        }

    async def _listed(self, container: Container) -> list[tuple[FileFacts, files.FoundFile]]:
        def read() -> list[tuple[FileFacts, files.FoundFile]]:  # the ids of 10,000 take 0.1 s
            found = files.list_files(container.directory, self._disk.entries)
            return [(_file_facts(container, one), one) for one in found]

        return await asyncio.to_thread(read)

    async def pictures(
        self, container: Container, written: Sequence[FileFacts], at_most: int
    ) -> list[bytes]:
        """The PNG images among these files, at most so many bytes together."""
        return await asyncio.to_thread(_pictures, container, written, at_most)

    async def add(
        self, owner: str, container_id: str, name: str, data: bytes | Upload
    ) -> FileFacts:
        container = self._find(owner, container_id)
        try:
            added = await asyncio.to_thread(self._add, container, name, data)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise ApiError(f"The file could not be stored: {reason(error)}.") from error
            raise invalid_value(
                "file", f"'{name:.100}' is not a valid file name in a container"
            ) from None
        container.added.add(name)
        self._used(container)
        return _file_facts(container, added)

    def _add(self, container: Container, name: str, data: bytes | Upload) -> files.FoundFile:
        """Add a file; concurrent additions are counted and written one by one."""
        with container.changing:
            if container.removed:
                raise not_found(container.id)
            container.directory.mkdir(mode=0o700, exist_ok=True)
            used_now = usage(container.directory, self._disk)
            most = self._disk
            size_bytes = len(data) if isinstance(data, bytes) else data.size_bytes
            if (
                used_now.size_bytes + size_bytes > most.size_bytes
                or used_now.entries >= most.entries
            ):
                raise InvalidRequest(
                    f"The container is full: limit {most.size_bytes} bytes, {most.entries} files.",
                    param="file",
                    code="container_full",
                )
            return files.add_file(
                container.directory, name, data if isinstance(data, bytes) else data.pieces
            )

    async def _locate(
        self, owner: str, container_id: str, file_id: str
    ) -> tuple[Container, str, FileFacts]:
        container = self._find(owner, container_id)
        for facts, one in await self._listed(container):
            if facts.id == file_id:
                return container, one.path, facts
        raise _no_file(file_id)


def _file_facts(container: Container, file: files.FoundFile) -> FileFacts:
    """The facts of a file. Bytes of its name that are not UTF-8 are replaced."""
    raw = os.fsencode(file.path)
    digest = hashlib.sha256(container.id.encode() + b"\0" + raw).hexdigest()[:48]
    path = raw.decode("utf-8", "replace")
    is_users = file.path in container.added
    return FileFacts(f"cfile_{digest}", path, file.size_bytes, file.modified_at, is_users)


def _pictures(container: Container, written: Sequence[FileFacts], at_most: int) -> list[bytes]:
    found = []
    for one in sorted(written, key=lambda facts: facts.path):
        if not len(PNG) < one.size_bytes <= at_most:
            continue
        with suppress(FileNotFoundError):
            with os.fdopen(files.open_file(container.directory, one.path), "rb") as file:
                data = file.read(at_most + 1)
            if data.startswith(PNG) and len(data) <= at_most:
                found.append(data)
                at_most -= len(data)
    return found


def _is_lost(container: Container, name: str) -> bool:
    return not os.path.lexists(container.directory / name)


def _no_file(file_id: str) -> InvalidRequest:
    return InvalidRequest(
        f"File with id '{file_id:.100}' not found in the container.",
        status=404,
        code="file_not_found",
    )

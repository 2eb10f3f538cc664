"""Containers: a directory and an interpreter that an owner's responses come back to.

They are known by ids that nobody can guess, bound to their owner, and end when nobody has used them
for a while. Knows processes and directories; knows no HTTP and no model.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest
from trt_responses.frozen import dataclass
from trt_responses.tools.base import ContainerFacts, FileFacts, ToolAnswer
from trt_responses.tools.code import files
from trt_responses.tools.code.command import Command
from trt_responses.tools.code.directories import (
    ServerDirectory,
    Usage,
    remove_tree,
    unlinked_bytes,
    usage,
)
from trt_responses.tools.code.process import Ended, PythonProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from trt_responses.tools.code.command import Finished, Shell
    from trt_responses.tools.code.process import Interpreter

logger = logging.getLogger(__name__)

LOST = "Its variables are lost; its files are kept."
LOOK_S = 0.2
"""Between two looks at how much a running call has written to its directory."""
EXPIRY_LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What containers may take."""

    deadline_s: float
    disk: Usage
    idle_s: float
    most: int
    most_per_owner: int


class Full(Exception):
    """There were too many files, or too large ones; the message is for the model."""


class Container:
    """One container. Nothing of it exists before its first call."""

    def __init__(self, owner: str, parent: Path, name: str, now_s: float, idle_s: float) -> None:
        self.id = f"cntr_{secrets.token_hex(24)}"
        self.owner = owner
        self.name = name
        self.created_at = self.last_active_at = now_s
        self.idle_s = idle_s
        self.directory = parent / self.id
        self.process: PythonProcess | None = None
        self.command: Command | None = None
        """The one that runs."""
        self.added: set[str] = set()
        """The names of files that the owner has added."""
        self.deleted = False
        self.busy = asyncio.Lock()
        """One call at a time."""

    @property
    def facts(self) -> ContainerFacts:
        return ContainerFacts(
            self.id, self.name, int(self.created_at), int(self.last_active_at), self.idle_s
        )

    async def run(self, code: str, how: Interpreter, bounds: Bounds) -> ToolAnswer:
        """Run code in it. Whatever ends this early ends the interpreter, and all that it began."""
        whole = False
        try:
            async with asyncio.timeout(bounds.deadline_s):
                process = await self.begun(how)
                async with self._watched(process, bounds.disk):
                    output = await process.call(code)
            whole = True
            return ToolAnswer(output.text)
        except TimeoutError:
            text = f"The code ran longer than {bounds.deadline_s:g} seconds and was ended. {LOST}"
        except Full as full:
            text = str(full)
        except Ended as ended:
            text = f"{ended} {LOST}"
        finally:
            if not whole:
                self.end_process()
        return ToolAnswer(text, failed=True)

    async def run_command(
        self,
        cmd: Sequence[str],
        env: Mapping[str, str],
        workdir: str,
        deadline_s: float,
        how: Shell,
        disk: Usage,
    ) -> Finished:
        """Run a command in it, to its end or to its deadline; nothing of it is left then. Raises
        `Ended`, or a `Full` and there are no files any more."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        command = self.command = Command(self.directory, how, cmd, env, workdir)
        try:
            async with self._watched(command, disk):
                finished = await command.finished(deadline_s)
        finally:
            self.command = None
            command.kill()
        return finished

    def end_process(self) -> None:
        """End whatever runs in it."""
        process, self.process = self.process, None
        command, self.command = self.command, None
        for one in (process, command):
            if one is not None:
                one.kill()

    def remove(self) -> None:
        self.end_process()
        remove_tree(self.directory)

    async def begun(self, how: Interpreter) -> PythonProcess:
        """Its interpreter, begun where there is none that lives."""
        if self.process is None or not self.process.alive:
            self.end_process()
            self.directory.mkdir(mode=0o700, exist_ok=True)
            self.process = PythonProcess(self.directory, how)
            await self.process.shut_in()
        return self.process

    @asynccontextmanager
    async def _watched(self, running: PythonProcess | Command, disk: Usage) -> AsyncIterator[None]:
        """Ends what runs if it fills the disk. Raises `Full` then, and where it has filled it."""
        watching = asyncio.create_task(self._watch(running, disk))
        try:
            yield
        except Ended:
            if not watching.done():
                await self._look(disk)
                raise
        finally:
            watching.cancel()
            await asyncio.wait((watching,))
        await self._look(disk, was_full=not watching.cancelled())

    async def _watch(self, running: PythonProcess | Command, disk: Usage) -> None:
        """No limit of the kernel's counts a directory."""
        while True:
            await asyncio.sleep(LOOK_S)
            if await asyncio.to_thread(self._too_much, disk):
                running.kill_group()
                return

    async def _look(self, disk: Usage, *, was_full: bool = False) -> None:
        if was_full or await asyncio.to_thread(self._too_much, disk):
            self.end_process()
            await asyncio.to_thread(remove_tree, self.directory)
            raise Full(
                f"The files took more than {disk.size_bytes // 2**20} MiB, or were more than "
                f"{disk.entries}: what ran was ended, and variables and files are lost."
            )

    def _too_much(self, most: Usage) -> bool:
        used = usage(self.directory, most)
        if used.size_bytes > most.size_bytes or used.entries > most.entries:
            return True
        pids = [pid for one in (self.process, self.command) if one is not None for pid in one.pids]
        nameless = unlinked_bytes(pids, self.directory, most.size_bytes)
        return used.size_bytes + nameless > most.size_bytes


class Containers:
    """All of one server's."""

    def __init__(
        self,
        parent: Path,
        how: Interpreter,
        bounds: Bounds,
        *,
        clock_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.bounds = bounds
        self.how = how
        self._parent = parent
        self._clock_s = clock_s
        self._sleep = sleep
        self._held: dict[str, Container] = {}
        """By id, the one that was used last at the end."""
        self._server: ServerDirectory | None = None
        self._tools = 0
        self._expiring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """For each tool that runs code in them; the last that stops ends them all."""
        self._tools += 1
        if self._tools > 1:
            return
        self._server = await asyncio.to_thread(ServerDirectory, self._parent)
        self._expiring = asyncio.create_task(self._expire())

    async def try_out(self) -> int | None:
        """The version of Landlock that holds an interpreter here; None without a box. Raises
        `Ended` with the reason why there can be none."""
        container = self.fresh("")
        try:
            return (await container.begun(self.how)).box
        finally:
            await asyncio.to_thread(container.remove)

    async def stop(self) -> None:
        self._tools -= 1
        if self._tools:
            return
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.wait((self._expiring,))
        for container in self._held.values():
            container.end_process()
        self._held.clear()
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.remove)

    def fresh(self, owner: str, name: str = "", idle_s: float | None = None) -> Container:
        """A container that nobody finds before it is kept."""
        assert self._server is not None, "not started"
        seconds = self.bounds.idle_s if idle_s is None else min(idle_s, self.bounds.idle_s)
        return Container(owner, self._server.path, name, self._clock_s(), seconds)

    async def keep(self, container: Container) -> None:
        """Let its owner find it. The one that was idle longest makes room; without one that is
        idle, an `InvalidRequest`."""
        if container.deleted:
            raise _not_found(container.id)
        if container.id in self._held:
            return
        mine = [held for held in self._held.values() if held.owner == container.owner]
        bounds = self.bounds
        for some, most in ((mine, bounds.most_per_owner), (list(self._held.values()), bounds.most)):
            if len(some) >= most:
                idle = next((held for held in some if not held.busy.locked()), None)
                if idle is None:
                    raise InvalidRequest(
                        f"{len(some)} containers are at work, which is all that there may be: try "
                        "again later.",
                        status=429,
                        code="too_many_containers",
                    )
                await self._remove(idle)
        self._held[container.id] = container

    def find(self, owner: str, container_id: str) -> Container | None:
        container = self._held.get(container_id)
        return container if container is not None and container.owner == owner else None

    def get(self, owner: str, container_id: str) -> Container:
        """The same answer for an id that nobody has and for another owner's."""
        container = self.find(owner, container_id)
        if container is None:
            raise _not_found(container_id)
        return container

    def of_conversation(
        self, owner: str, asked: str | None, used: Sequence[object], place: str
    ) -> Container:
        """The container that is asked for, or the living one that comes last among those that were
        used, or a new one."""
        if asked is not None:
            try:
                return self.get(owner, asked)
            except InvalidRequest as error:
                error.param = place
                raise
        for one in reversed(used):
            if isinstance(one, str) and (living := self.find(owner, one)):
                return living
        return self.fresh(owner)

    async def create(self, owner: str, name: str, idle_s: float | None) -> ContainerFacts:
        """A container that its owner finds from now on. Its interpreter begins with a call."""
        container = self.fresh(owner, name, idle_s)
        await self.keep(container)
        return container.facts

    def facts_of(self, owner: str) -> list[ContainerFacts]:
        return sorted(
            (container.facts for container in self.of(owner)),
            key=lambda facts: (facts.created_at, facts.id),
        )

    def facts(self, owner: str, container_id: str) -> ContainerFacts:
        return self.get(owner, container_id).facts

    def of(self, owner: str) -> list[Container]:
        return [held for held in self._held.values() if held.owner == owner]

    async def delete(self, owner: str, container_id: str) -> None:
        container = self.get(owner, container_id)
        container.deleted = True
        await self._remove(container)

    async def files_of(self, owner: str, container_id: str) -> list[FileFacts]:
        container = self.get(owner, container_id)
        most = self.bounds.disk.entries
        found = await asyncio.to_thread(files.found_files, container.directory, most)
        return [_file_facts(container, one) for one in found]

    async def file(self, owner: str, container_id: str, file_id: str) -> FileFacts:
        return (await self._found(owner, container_id, file_id))[2]

    async def open_file(self, owner: str, container_id: str, file_id: str) -> int:
        container, path, _ = await self._found(owner, container_id, file_id)
        try:
            return await asyncio.to_thread(files.open_file, container.directory, path)
        except FileNotFoundError:
            raise _no_file(file_id) from None

    async def delete_file(self, owner: str, container_id: str, file_id: str) -> None:
        container, path, _ = await self._found(owner, container_id, file_id)
        try:
            await asyncio.to_thread(files.remove_file, container.directory, path)
        except FileNotFoundError:
            raise _no_file(file_id) from None
        container.added.discard(path)

    async def add_file(self, owner: str, container_id: str, name: str, data: bytes) -> FileFacts:
        container = self.get(owner, container_id)
        try:
            added = await asyncio.to_thread(self._add_file, container, name, data)
        except (OSError, ValueError):
            raise InvalidRequest(
                f"Invalid value for 'file': no file of a container can have the name "
                f"'{name:.100}'.",
                param="file",
                code="invalid_value",
            ) from None
        container.added.add(name)
        self.used(container)
        return _file_facts(container, added)

    def _add_file(self, container: Container, name: str, data: bytes) -> files.FoundFile:
        disk = self.bounds.disk
        container.directory.mkdir(mode=0o700, exist_ok=True)
        held = usage(container.directory, disk)
        if held.size_bytes + len(data) > disk.size_bytes or held.entries >= disk.entries:
            raise InvalidRequest(
                f"The container has no room for the file: it may hold {disk.size_bytes} bytes in "
                f"{disk.entries} files.",
                param="file",
                code="container_full",
            )
        return files.add_file(container.directory, name, data)

    async def _found(
        self, owner: str, container_id: str, file_id: str
    ) -> tuple[Container, str, FileFacts]:
        container = self.get(owner, container_id)
        most = self.bounds.disk.entries
        for one in await asyncio.to_thread(files.found_files, container.directory, most):
            facts = _file_facts(container, one)
            if facts.id == file_id:
                return container, one.path, facts
        raise _no_file(file_id)

    def used(self, container: Container) -> None:
        """Its idle time counts from now."""
        container.last_active_at = self._clock_s()
        if self._held.pop(container.id, None) is not None:
            self._held[container.id] = container

    async def _remove(self, container: Container) -> None:
        self._held.pop(container.id, None)
        await asyncio.to_thread(container.remove)

    async def _expire(self) -> None:
        while True:
            await self._sleep(EXPIRY_LOOK_S)
            now = self._clock_s()
            for held in list(self._held.values()):
                if not held.busy.locked() and now - held.last_active_at > held.idle_s:
                    await self._remove(held)


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


def _not_found(container_id: str) -> InvalidRequest:
    return InvalidRequest(
        f"Container with id '{container_id:.100}' not found: it has expired, was deleted, or was "
        "never made.",
        status=404,
        code="container_not_found",
    )

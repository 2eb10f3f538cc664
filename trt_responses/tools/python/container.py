"""A container: a directory and the processes in it, for one owner.

Processes and directories only: no other container, no HTTP and no model.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from trt_responses.errors import InvalidRequest
from trt_responses.frozen import dataclass
from trt_responses.tasks import beside
from trt_responses.tool import ToolAnswer, ToolCall
from trt_responses.tools.containers import ContainerFacts
from trt_responses.tools.python.command import Command, Finished, Shell
from trt_responses.tools.python.directories import Usage, remove_tree, unlinked_bytes, usage
from trt_responses.tools.python.process import Ended, Interpreter, PythonProcess

LOST = "Its variables are lost; its files are kept."
LOOK_S = 0.2
"""Interval of disk usage checks during a call."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of containers."""

    deadline_s: float
    disk: Usage
    idle_s: float
    most: int
    most_per_owner: int


class Full(Exception):
    """The container's files exceed their limit; the message is for the model."""


class Container:
    """One container. Its directory and processes are created on the first call."""

    def __init__(self, owner: str, parent: Path, name: str, now_s: float, idle_s: float) -> None:
        self.id = f"cntr_{secrets.token_hex(24)}"
        self.owner = owner
        self.name = name
        self.created_at = self.last_active_at = now_s
        self.idle_s = idle_s
        self.directory = parent / self.id
        self.process: PythonProcess | None = None
        self.command: Command | None = None
        """The running command, if any."""
        self.added: set[str] = set()
        """The names of files that the owner added."""
        self.copied: dict[str, str] = {}
        """The names of uploaded files that were copied into it, by their ids."""
        self.deleted = False
        self.removed = False
        """Whether its directory is gone, so that no file can be added."""
        self.busy = asyncio.Lock()
        """Serialises calls."""
        self.changing = threading.Lock()
        """Serialises the threads that add an owner's file or remove the directory."""

    @property
    def facts(self) -> ContainerFacts:
        return ContainerFacts(
            self.id, self.name, int(self.created_at), int(self.last_active_at), self.idle_s
        )

    @asynccontextmanager
    async def turn(self, call: ToolCall) -> AsyncIterator[None]:
        """What a call of a tool does in it, after the calls of others."""
        with call.waits():
            await self.busy.acquire()
        try:
            yield
        finally:
            self.busy.release()

    async def run(self, code: str, how: Interpreter, bounds: Bounds) -> ToolAnswer:
        """Run code in it. An early end of this call kills the interpreter and its descendants."""
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
            text = not_found(self.id).message if self.deleted else f"{ended} {LOST}"
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
        """Run a command in it to its end or its deadline, and end its whole tree. Raises `Ended`,
        or
        `Full` after removing all files."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        command = self.command = Command(self.directory, how, cmd, env, workdir)
        try:
            async with self._watched(command, disk):
                finished = await command.finished(deadline_s)
        finally:
            self.command = None
            command.kill()
        return finished

    def break_off(self) -> None:
        """Interrupt the running call; it then returns."""
        for one in (self.process, self.command):
            if one is not None:
                one.kill_group()

    def end_process(self) -> None:
        """Kill and forget the running processes. There must be no waiter for an answer."""
        process, self.process = self.process, None
        command, self.command = self.command, None
        for one in (process, command):
            if one is not None:
                one.kill()

    def remove(self) -> None:
        self.end_process()
        with self.changing:
            self.removed = True
            remove_tree(self.directory)

    async def begun(self, how: Interpreter) -> PythonProcess:
        """The container's interpreter, started if none is alive."""
        if self.process is None or not self.process.alive:
            self.end_process()
            self.directory.mkdir(mode=0o700, exist_ok=True)
            self.process = PythonProcess(self.directory, how)
            await self.process.shut_in()
        return self.process

    @asynccontextmanager
    async def _watched(self, running: PythonProcess | Command, disk: Usage) -> AsyncIterator[None]:
        """Kill the running process if it exceeds the disk limit, and raise `Full`; also check at
        the end."""
        async with beside(self._watch(running, disk)) as watching:
            try:
                yield
            except Ended:
                if not watching.done():
                    await self._look(disk)
                    raise
        await self._look(disk, was_full=not watching.cancelled())

    async def _watch(self, running: PythonProcess | Command, disk: Usage) -> None:
        """Poll disk usage: the kernel has no limit per directory."""
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
                f"The files exceeded {disk.size_bytes // 2**20} MiB or {disk.entries} entries: the "
                "process was ended, and variables and files are lost."
            )

    def _too_much(self, most: Usage) -> bool:
        used = usage(self.directory, most)
        if used.size_bytes > most.size_bytes or used.entries > most.entries:
            return True
        pids = [pid for one in (self.process, self.command) if one is not None for pid in one.pids]
        nameless = unlinked_bytes(pids, self.directory, most.size_bytes)
        return used.size_bytes + nameless > most.size_bytes


def not_found(container_id: str) -> InvalidRequest:
    """The error for an unknown container."""
    return InvalidRequest(
        f"Container with id '{container_id:.100}' not found: it has expired, was deleted, or "
        "never existed.",
        status=404,
        code="container_not_found",
    )

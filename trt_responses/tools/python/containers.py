"""Containers: a directory and an interpreter that an owner's responses come back to.

They are known by ids that nobody can guess, bound to their owner, and end when nobody has used them
for a while. Knows processes and directories; knows no HTTP and no model.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trt_responses.errors import InvalidRequest
from trt_responses.tools.python.container import Container, not_found
from trt_responses.tools.python.container_files import ContainerFiles
from trt_responses.tools.python.directories import ServerDirectory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence
    from pathlib import Path

    from trt_responses.tool import ContainerFacts
    from trt_responses.tools.python.container import Bounds
    from trt_responses.tools.python.process import Interpreter

EXPIRY_LOOK_S = 5.0


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
        self.files = ContainerFiles(self.get, self.used, bounds.disk)
        self._parent = parent
        self._clock_s = clock_s
        self._sleep = sleep
        self._held: dict[str, Container] = {}
        """By id, the one that was used last at the end."""
        self._server: ServerDirectory | None = None
        self._tools = 0
        self._expiring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start once more, for each tool that runs code here; the last that stops ends all
        containers."""
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
            raise not_found(container.id)
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
            raise not_found(container_id)
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

    @property
    def held(self) -> Collection[Container]:
        """All owners' containers."""
        return self._held.values()

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

    def used(self, container: Container) -> None:
        """Count a container's idle time from now."""
        container.last_active_at = self._clock_s()
        if self._held.pop(container.id, None) is not None:
            self._held[container.id] = container

    async def _remove(self, container: Container) -> None:
        """When what runs in it has ended, and its call has heard so: the pipes are the loop's until
        then."""
        self._held.pop(container.id, None)
        container.break_off()
        await asyncio.shield(self._removed(container))

    async def _removed(self, container: Container) -> None:
        async with container.busy:
            await asyncio.to_thread(container.remove)

    async def _expire(self) -> None:
        while True:
            await self._sleep(EXPIRY_LOOK_S)
            now = self._clock_s()
            for held in list(self._held.values()):
                if not held.busy.locked() and now - held.last_active_at > held.idle_s:
                    await self._remove(held)

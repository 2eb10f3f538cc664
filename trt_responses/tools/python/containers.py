"""Containers: directories and interpreters that an owner's responses can use again.

They have unguessable ids, belong to one owner, and expire after a time without use. Processes and
directories only: no HTTP and no model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

from trt_responses.errors import InvalidRequest
from trt_responses.tools.containers import ContainerFacts
from trt_responses.tools.python.container import Bounds, Container, not_found
from trt_responses.tools.python.container_files import ContainerFiles
from trt_responses.tools.python.directories import ServerDirectory
from trt_responses.tools.python.process import Interpreter

EXPIRY_LOOK_S = 5.0


class Containers:
    """All containers of one server."""

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
        self._by_id: dict[str, Container] = {}
        """By id, the most recently used last."""
        self._server: ServerDirectory | None = None
        self._tools = 0
        self._expiring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start for one more tool. The `stop` of the last tool ends all containers."""
        self._tools += 1
        if self._tools > 1:
            return
        self._server = await asyncio.to_thread(ServerDirectory, self._parent)
        self._expiring = asyncio.create_task(self._expire())

    async def try_out(self) -> int | None:
        """Start an interpreter on trial. Returns the Landlock version of its sandbox, or None
        without one. Raises `Ended` if it cannot be sandboxed."""
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
        for container in self._by_id.values():
            container.end_process()
        self._by_id.clear()
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.remove)

    def fresh(self, owner: str, name: str = "", idle_s: float | None = None) -> Container:
        """A new container; its owner can find it after `keep`."""
        assert self._server is not None, "not started"
        seconds = self.bounds.idle_s if idle_s is None else min(idle_s, self.bounds.idle_s)
        return Container(owner, self._server.path, name, self._clock_s(), seconds)

    async def keep(self, container: Container) -> None:
        """Register a container for its owner. At the limit, the longest idle one is removed; if all
        are busy, raises an `InvalidRequest`."""
        if container.deleted:
            raise not_found(container.id)
        if container.id in self._by_id:
            return
        while some := self._at_limit(container.owner):  # others may come during a removal
            idle = next((each for each in some if not each.busy.locked()), None)
            if idle is None:
                raise InvalidRequest(
                    f"Too many containers are busy: {len(some)}, the limit. Try again later.",
                    status=429,
                    code="too_many_containers",
                )
            await self._remove(idle)
        self._by_id[container.id] = container

    def _at_limit(self, owner: str) -> list[Container]:
        """The containers of which one must go before the owner can have another, if any."""
        own, bounds = self.of(owner), self.bounds
        if len(own) >= bounds.most_per_owner:
            return own
        return list(self._by_id.values()) if len(self._by_id) >= bounds.most else []

    def find(self, owner: str, container_id: str) -> Container | None:
        container = self._by_id.get(container_id)
        return container if container is not None and container.owner == owner else None

    def get(self, owner: str, container_id: str) -> Container:
        """The owner's container. An unknown id and another owner's id raise the same error."""
        container = self.find(owner, container_id)
        if container is None:
            raise not_found(container_id)
        return container

    def of_conversation(
        self, owner: str, requested: str | None, used: Sequence[object], place: str
    ) -> Container:
        """The requested container, else the last existing one that the conversation used, else a
        new one."""
        if requested is not None:
            try:
                return self.get(owner, requested)
            except InvalidRequest as error:
                error.param = place
                raise
        for one in reversed(used):
            if isinstance(one, str) and (living := self.find(owner, one)):
                return living
        return self.fresh(owner)

    async def create(self, owner: str, name: str, idle_s: float | None) -> ContainerFacts:
        """A new registered container. Its interpreter starts with the first call."""
        container = self.fresh(owner, name, idle_s)
        await self.keep(container)
        return container.facts

    @property
    def living(self) -> Collection[Container]:
        """The containers of all owners."""
        return self._by_id.values()

    def facts_of(self, owner: str) -> list[ContainerFacts]:
        return sorted(
            (container.facts for container in self.of(owner)),
            key=lambda facts: (facts.created_at, facts.id),
        )

    def facts(self, owner: str, container_id: str) -> ContainerFacts:
        return self.get(owner, container_id).facts

    def of(self, owner: str) -> list[Container]:
        return [each for each in self._by_id.values() if each.owner == owner]

    async def delete(self, owner: str, container_id: str) -> None:
        container = self.get(owner, container_id)
        container.deleted = True
        await self._remove(container)

    def used(self, container: Container) -> None:
        """Reset a container's idle time."""
        container.last_active_at = self._clock_s()
        if self._by_id.pop(container.id, None) is not None:
            self._by_id[container.id] = container

    async def _remove(self, container: Container) -> None:
        """Remove a container after its running call has returned: until then the event loop uses
        its pipes."""
        self._by_id.pop(container.id, None)
        container.break_off()
        await asyncio.shield(self._removed(container))

    async def _removed(self, container: Container) -> None:
        async with container.busy:
            await asyncio.to_thread(container.remove)

    async def _expire(self) -> None:
        while True:
            await self._sleep(EXPIRY_LOOK_S)
            now = self._clock_s()
            for each in list(self._by_id.values()):
                if not each.busy.locked() and now - each.last_active_at > each.idle_s:
                    await self._remove(each)

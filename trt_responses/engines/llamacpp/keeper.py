"""Keeps one child alive: starts it, tests it, and restarts it with backoff when it dies.

The child's life only: no requests. `alive` becomes False after too many deaths in a row for which
no request is to blame.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trt_responses.engines.llamacpp.process import Child, Model
from trt_responses.errors import StartupError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts and limits for a child."""

    start_timeout_s: float = 600.0
    idle_timeout_s: float = 120.0
    """Seconds without a byte for any running request, after which the child must show that it is
    not frozen. After twice as many it must return a token."""
    probe_timeout_s: float = 30.0
    """Timeout of either check; then the child is replaced."""
    first_backoff_s: float = 0.1
    max_failures: int = 5
    turn_s: float = 0.25
    """Seconds after which an adapter's turn ends if requests wait for another adapter."""


class Keeper:
    """`excused` decides at each death whether a request is to blame; then it does not count as a
    failure of the engine. `on_down` is called after each death."""

    def __init__(
        self,
        model: Model,
        patience: Patience,
        *,
        prove: Callable[[Child], Awaitable[None]],
        excused: Callable[[], bool],
        on_up: Callable[[], None],
        on_down: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.alive = True
        self.child: Child | None = None
        self._model = model
        self._patience = patience
        self._prove = prove
        self._excused = excused
        self._on_up = on_up
        self._on_down = on_down
        self._sleep = sleep
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        child = await self._spawn()
        self._on_up()
        self._task = asyncio.create_task(self._keep(child))

    def praise(self) -> None:
        """Note that the child answered a request, which resets its failures."""
        self._failures = 0

    async def stop(self, deadline_s: float) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self.child is not None:
            await self.child.end(deadline_s)

    async def _keep(self, child: Child | None) -> None:
        while child is not None:
            self._fell(f"The engine's process ended: {await child.ended()}.")
            child = await self._again()
            if child is not None:
                self._on_up()

    async def _again(self) -> Child | None:
        while self.alive:
            await self._sleep(self._patience.first_backoff_s * 2 ** max(0, self._failures - 1))
            try:
                return await self._spawn()
            except StartupError as error:
                self._fell(str(error))
        return None

    async def _spawn(self) -> Child:
        self.child = None
        child = await Child.spawn(self._model, self._patience.start_timeout_s)
        self.child = child
        try:
            async with asyncio.timeout(self._patience.start_timeout_s):
                await self._prove(child)
        except TimeoutError:
            await child.end(0)
            raise StartupError("The engine loaded the model and returned no token.") from None
        except StartupError:
            await child.end(0)
            raise
        return child

    def _fell(self, reason: str) -> None:
        if self._excused():
            logger.warning("restarting the engine's process: %s A request is to blame.", reason)
        else:
            self._failures += 1
            self.alive = self._failures < self._patience.max_failures
            what = "restarting the engine's process" if self.alive else "giving up on the engine"
            logger.warning("%s: %s Failure %d in a row.", what, reason, self._failures)
        self._on_down(reason)

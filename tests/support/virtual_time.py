"""An event loop whose time passes only while nothing can run: an hour takes as long as its work.

What a thread would do is done at once, so that the order of all steps is the same each time.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class _NoWait(selectors.DefaultSelector):
    """Lets the loop's time pass in place of a wait."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everything waits for something that never happens")
        self.loop.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own."""

    def __init__(self) -> None:
        selector = _NoWait()
        selector.loop = self
        self.now_s = 0.0
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def run(story: Coroutine[Any, Any, T]) -> T:
    """Run a story to its end on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)

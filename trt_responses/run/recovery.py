"""The seam of recovery: what holds runs whose engine went away, and lets them go on when it is
back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trt_responses.engine import Engine, Loss


class Pauses(Protocol):
    """The pauses of one run."""

    unheard: bool
    """Whether it went on after the last pause and has no token yet."""

    async def back(self, loss: Loss, *, silent: bool, tokens: int) -> None:
        """Wait until the engine is back and may get the run again, which has so many tokens, and
        none since the last pause if `silent`. Raises an `EngineLost` that says why not."""
        ...

    def note_token(self) -> None:
        """Note that the run has a token, or wants none any more."""
        ...


class Recovery(Protocol):
    """The pauses of all runs over one engine."""

    @property
    def paused(self) -> int:
        """The number of runs that wait for the engine now."""
        ...

    def over(self, engine: Engine) -> Recovery:
        """The recovery of one version of the engine, whose runs are counted here too."""
        ...

    def pauses(self) -> Pauses:
        """Those of one more run."""
        ...

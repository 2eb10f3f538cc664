"""A run while it is put together: each fact of it once, for the next step.

The core fills it from above to below, and the steps of features change its values. The run keeps
it until its end is stored.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trt_responses.errors import refuse_longer
from trt_responses.feature import joints_of
from trt_responses.language.steering import Free
from trt_responses.log.machine import Machine
from trt_responses.run.generation import Generation
from trt_responses.run.sink import Sink
from trt_responses.run.turns import Notes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from trt_responses.accept.accepted import Accepted
    from trt_responses.engine import Engine, GenerateOptions, Limits
    from trt_responses.feature import Step
    from trt_responses.language.reader import Reader
    from trt_responses.language.steering import SteeringPlan
    from trt_responses.log.item_events import Callee
    from trt_responses.log.log import Log
    from trt_responses.log.machine import MachineOptions, Mint
    from trt_responses.prompt.history import Prior
    from trt_responses.prompt.prompt import Prompt
    from trt_responses.run.admission import Place
    from trt_responses.run.generation import Resume
    from trt_responses.run.parts import Parts
    from trt_responses.run.request import RunRequest
    from trt_responses.run.turns import Turns
    from trt_responses.steering.steering import SteeringRequest
    from trt_responses.store import Records

    Release = Callable[[], Awaitable[None]]

logger = logging.getLogger(__name__)


class Draft:
    """One run, from its request on."""

    # Each is set before the joint that may read it.
    place: Place
    limits: Limits
    prompt: Prompt
    steering: SteeringRequest
    parallel: bool
    """Whether a turn may hold several calls."""
    turns: Turns
    log: Log
    mint: Mint
    """Gives ids of items."""
    reader: Reader
    options: GenerateOptions

    # What most runs leave as it is. Beyond thirty attributes of its own an object takes longer.
    created_at: int | None = None
    """None: now."""
    date: str | None = None
    """Of a prompt that begins no conversation but goes on with none; None: today."""
    term = 1
    """Which of its servers this one is."""
    left = False
    """Whether another server goes on with it: what is held stays so."""
    prior: Prior | None = None
    """What it continues; None: it is looked up."""
    silent: Collection[int] = ()
    """The places of input items that say nothing to the model."""
    at_call = False
    """Whether the prompt ends where the answers of calls follow."""
    recipients: Collection[str] = ()
    """Those of calls that end a turn."""
    tool_names: Collection[str] = ()
    """The server's tools by their names in the prompt."""
    called: Mapping[str, Callee] = {}
    """The functions of the client, by the recipients of their calls."""
    answers = True
    """Whether it answers a conversation."""
    writes_tokens: int | None = None
    """All that is to be written, where that is known."""

    def __init__(self, request: RunRequest, steps: tuple[Step, ...], parts: Parts) -> None:
        self.request = request
        self.steps = steps
        self.joints = joints_of(steps)
        """The steps' methods for each joint."""
        self.parts = parts
        self.accepted: Accepted = request.accepted
        self.owner = request.owner
        self.id = request.id or parts.mint("resp")
        self.records: Records = parts.store
        """Where what it continues and refers to is looked up."""
        self.notes = Notes()
        self.engine: Engine = parts.engine
        self.resume: Resume | None = None if parts.recovery is None else parts.recovery.resume
        self.generation: Callable[..., Generation] = Generation
        self.sink: Callable[..., Sink] = Sink
        self.machine: Callable[..., Machine] = Machine
        self.machine_options: MachineOptions = {}
        self._after_generating: list[Release] = []
        self._after_storing: list[Release] = []

    @property
    def moves(self) -> bool:
        """Whether another server can go on with it from its ids."""
        return all(step.moves for step in self.steps)

    def plan_for(self, prompt_tokens: int) -> SteeringPlan:
        """The plan of the segments behind a prompt of so many tokens."""
        accepted, parts = self.accepted, self.parts
        read = prompt_tokens + len(accepted.begun)
        context = self.limits.context_tokens
        if read > context - 1:
            refuse_longer(read, context - 1)
        if self.writes_tokens is not None:
            return Free(self.writes_tokens)
        budget = min(context - read, accepted.max_output_tokens or context)
        if self.parallel:
            return self.steering.parallel_plan(budget, self.called, parts.max_calls)
        return self.steering.plan(budget)

    # --- what is held -------------------------------------------------------------------------

    def after_generating(self, release: Release) -> None:
        """Have it let go of when nothing more is generated."""
        self._after_generating.append(release)

    def after_storing(self, release: Release) -> None:
        """Release it when the end is stored, before it is sent."""
        self._after_storing.append(release)

    async def generated(self) -> None:
        if self._after_generating:
            await _release(self._after_generating)

    async def stored(self) -> None:
        if self._after_storing:
            await _release(self._after_storing)

    async def release(self) -> None:
        """Let go of all that is still held."""
        if self._after_generating or self._after_storing:
            try:
                await self.generated()
            finally:
                await self.stored()


async def _release(held: list[Release]) -> None:
    """Let go of each, the last one first, also where one is at fault or is cancelled."""
    try:
        while held:
            try:
                await held.pop()()
            except Exception:
                logger.exception("failed to release what a response holds")
    finally:
        if held:
            await _release(held)

"""Compacts a conversation that has become too long before it is answered, in the same run.

Knows the parts of a run and the compaction; knows no request and no HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trt_responses.features.compaction.compaction import (
    SUMMARY_TOKENS,
    Compaction,
    CompactionGeneration,
    SummaryMachine,
    can_be_shortened,
)
from trt_responses.frozen import replace
from trt_responses.language.reader import ReaderOptions
from trt_responses.log.custom_input import Unwrapper
from trt_responses.prompt.prompt import prompt_behind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trt_responses.accept.accepted import Accepted
    from trt_responses.engine import GenerateOptions
    from trt_responses.features.hosted_tools.loop import ToolLoop
    from trt_responses.language.steering import SteeringPlan
    from trt_responses.log.log import Log
    from trt_responses.log.machine import Mint
    from trt_responses.prompt.prompt import Prompt
    from trt_responses.run.ending import End
    from trt_responses.run.parts import Parts
    from trt_responses.run.second_chance import SecondChance
    from trt_responses.store import Block
    from trt_responses.wire.response import Usage

    PlanFor = Callable[[int], SteeringPlan]
    """Of an answer: by the tokens of its prompt."""
    GoesOn = Callable[[Block], Awaitable[tuple[Sequence[int], SteeringPlan]]]
    """Gives the prompt of a conversation with one block more, and how it is answered."""

FULL, SAID = 0.75, 0.5
"""`FULL`: the share of a context from which on it is compacted, for requests that give no number.
`SAID`: the share of that number that the users' own messages may take in the item."""


def compaction_of(
    accepted: Accepted, prompt: Prompt, parts: Parts, owner: str
) -> Compaction | None:
    """The compaction of a run: all that is asked for, or what comes before the answer; None when
    none is due."""
    said_tokens = None
    if not accepted.compacts:
        if accepted.compacts_beyond is None or not accepted.generates:
            return None
        beyond = accepted.compacts_beyond or int(parts.engine.limits().context_tokens * FULL)
        if len(prompt.ids) <= beyond or not can_be_shortened(prompt.blocks):
            return None
        said_tokens = int(beyond * SAID)
    return Compaction(
        prompt.blocks, prompt.date, parts.dialect, parts.sealer, owner, parts.model, said_tokens
    )


async def compacted_first(
    compaction: Compaction,
    prompt: Prompt,
    accepted: Accepted,
    parts: Parts,
    summary_plan: PlanFor,
    options: GenerateOptions,
    log: Log,
    mint: Mint,
    plan_for: PlanFor,
    later: Sequence[ToolLoop | SecondChance | None],
) -> CompactedFirst:
    """A compaction in the log of the answer. Where there is no room for a summary, it makes an
    extract."""
    ids = await compaction.prompt_ids(prompt)
    room = parts.engine.limits().context_tokens - len(ids)

    async def goes_on(block: Block) -> tuple[Sequence[int], SteeringPlan]:
        behind, continuation = await prompt_behind(prompt, block, accepted, parts)
        for one in later:
            if one is not None:
                one.continuation = continuation
        return behind, plan_for(len(behind))

    summarising = CompactionGeneration(
        compaction=compaction,
        prompt_ids=ids,
        plan=summary_plan(max(0, min(room, SUMMARY_TOKENS))),
        options=replace(options, logprobs=None),
        engine=parts.engine,
        reader=parts.dialect.reader(ReaderOptions(prompt=ids)),
        machine=SummaryMachine(log, {}, mint, Unwrapper),
        log=log,
        clock_ns=parts.clock_ns,
        recovery=parts.recovery,
    )
    return CompactedFirst(summarising, goes_on)


class CompactedFirst:
    """A compaction before an answer, which goes on from what that has left of the conversation."""

    def __init__(self, summarising: CompactionGeneration, goes_on: GoesOn) -> None:
        self._summarising = summarising
        self._goes_on = goes_on

    async def prompt_and_plan(self) -> tuple[Sequence[int], SteeringPlan] | End:
        end = await self._summarising.end()
        if end.status != "completed":
            return end
        (item,) = self._summarising.log.output
        return await self._goes_on(self._summarising.compaction.block(item))

    def decide(self, end: End) -> None:
        self._summarising.decide(end)

    def abort(self) -> None:
        self._summarising.abort()

    def pause(self) -> bool:
        return self._summarising.pause()

    def usage(self) -> Usage:
        return self._summarising.usage(())

"""Compactions that requests ask for, and those of conversations that have become too long.

The first is all that a run makes; the second comes before its answer, in the same log.
"""

from __future__ import annotations

from dataclasses import replace as replace_slots

from trt_responses.accept.accepted import Accepted
from trt_responses.feature import Step
from trt_responses.features.compaction.compaction import (
    ID_BYTES,
    SUMMARY_TOKENS,
    Compaction,
    CompactionGeneration,
    SummaryMachine,
    can_be_shortened,
    open_end,
    summarising,
)
from trt_responses.features.compaction.first import CompactedFirst
from trt_responses.features.references.sealed import Sealing
from trt_responses.frozen import replace
from trt_responses.language.reader import ReaderOptions
from trt_responses.prompt.prompt import prompt_behind
from trt_responses.run.assembly import steering_of
from trt_responses.run.draft import Draft
from trt_responses.run.ending import End
from trt_responses.run.generation import Generation
from trt_responses.run.turns import Turn
from trt_responses.store import Block
from trt_responses.wire.response import Response

FULL, USER_SHARE = 0.75, 0.5
"""`FULL`: the share of a context from which on it is compacted, for requests that give no number.
`USER_SHARE`: the share of that number for the users' own messages in the item."""


class Compactions:
    """Makes conversations short."""

    reads = ("compacts", "compacts_beyond")

    def __init__(self, sealer: Sealing) -> None:
        self._sealer = sealer

    def accept(self, accepted: Accepted) -> Step | None:
        if accepted.compacts:
            return CompactionStep(self._sealer)
        if accepted.compacts_beyond is not None and accepted.generates:
            return CompactedFirstStep(self._sealer, accepted.compacts_beyond)
        return None


class CompactionStep(Step):
    """The compaction is all that is made."""

    order = 20

    def __init__(self, sealer: Sealing) -> None:
        self._sealer = sealer
        self.compaction: Compaction | None = None

    async def prompted(self, draft: Draft) -> None:
        compaction = self.compaction = _compaction(draft, self._sealer, None)
        draft.accepted, draft.answers = summarising(draft.accepted), False
        ids = await compaction.prompt_ids(draft.prompt)
        draft.prompt = replace_slots(draft.prompt, ids=ids)

    def write(self, draft: Draft) -> None:
        compaction = self.compaction
        assert compaction is not None, "made with the prompt"
        draft.machine, draft.machine_options = SummaryMachine, {}
        draft.generation = lambda **parts: CompactionGeneration(compaction=compaction, **parts)

    def blocks(self, own: list[Block], last: Response) -> None:
        if last.output and self.compaction is not None:
            own[0] = self.compaction.block(last.output[0])


class CompactedFirstStep(Step):
    """The conversation is made short before it is answered, where that is due."""

    order = 20

    def __init__(self, sealer: Sealing, beyond: int) -> None:
        self._sealer = sealer
        self._beyond = beyond
        self._compaction: Compaction | None = None
        self._draft: Draft | None = None

    async def prompted(self, draft: Draft) -> None:
        context = draft.parts.engine.limits().context_tokens
        beyond = self._beyond or int(context * FULL)
        if len(draft.prompt.ids) > beyond and can_be_shortened(draft.prompt.blocks):
            stays = sum(len(each.ids) for each in open_end(draft.prompt.blocks)) // ID_BYTES
            users = max(0, min(int(beyond * USER_SHARE), int(context * FULL) - stays))
            self._compaction = _compaction(draft, self._sealer, users)
            draft.generation = CompactedFirst
            self._draft, self.moves = draft, False  # the summary is no part of what is kept

    async def before(self, generation: Generation) -> Turn | End | None:
        compaction, draft = self._compaction, self._draft
        if compaction is None or draft is None:
            return None
        summary = await _summary(compaction, draft)
        assert isinstance(generation, CompactedFirst)
        end = await generation.make_first(summary)
        if end.status != "completed":
            return end
        (item,) = summary.log.output
        accepted, parts = draft.accepted, draft.parts
        behind, continuation = await prompt_behind(
            draft.prompt, compaction.block(item), accepted, parts
        )
        generation.notes.continuation = continuation
        generation.begin_from(behind)
        return Turn(draft.plan_for(len(behind)))

    def blocks(self, own: list[Block], last: Response) -> None:
        if last.output and self._compaction is not None:
            own[0] = self._compaction.block(last.output[0])


def _compaction(draft: Draft, sealer: Sealing, message_tokens: int | None) -> Compaction:
    prompt, parts = draft.prompt, draft.parts
    return Compaction(
        prompt.blocks, prompt.date, parts.dialect, sealer, draft.owner, parts.model, message_tokens
    )


async def _summary(compaction: Compaction, draft: Draft) -> CompactionGeneration:
    """Writes the summary in the log of the answer. Where there is no room for one, it makes an
    extract."""
    parts = draft.parts
    steering = await steering_of(draft, summarising(draft.accepted))
    ids = await compaction.prompt_ids(draft.prompt)
    room = parts.engine.limits().context_tokens - len(ids)
    return CompactionGeneration(
        compaction=compaction,
        prompt_ids=ids,
        plan=steering.plan(max(0, min(room, SUMMARY_TOKENS))),
        options=replace(draft.options, logprobs=None),
        engine=parts.engine,
        reader=parts.dialect.reader(ReaderOptions(prompt=ids)),
        machine=SummaryMachine(draft.log, {}, draft.mint),
        log=draft.log,
        clock_ns=parts.clock_ns,
        resume=None if parts.recovery is None else parts.recovery.resume,
    )

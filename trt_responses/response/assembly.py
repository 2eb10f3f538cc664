"""Puts a run together from an accepted request: prompt, plan, reader, machine, log and commit.

Knows seams only: which engine, store and clock there are is the app's affair.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace as replace_slots
from functools import partial
from typing import TYPE_CHECKING

from trt_responses.errors import refuse_longer
from trt_responses.frozen import dataclass, replace
from trt_responses.harmony.read.custom_input import Unwrapper
from trt_responses.harmony.steer.plans import Free
from trt_responses.response import prefill
from trt_responses.response.commit import Commit
from trt_responses.response.compaction import (
    Compaction,
    CompactionGeneration,
    SummaryMachine,
    summarising,
)
from trt_responses.response.generation import Generation
from trt_responses.response.log.log import Log
from trt_responses.response.log.machine import Machine
from trt_responses.response.logprobs import ScoredGeneration, check_logprobs
from trt_responses.response.origin import ORIGIN
from trt_responses.response.prefill import Prefill
from trt_responses.response.prompt.prompt import prompt_of
from trt_responses.response.prompt.references import item_id
from trt_responses.response.run import Run
from trt_responses.response.seal.sealed_items import TurnSealer
from trt_responses.response.steering.tools import callees
from trt_responses.response.stop import StopText
from trt_responses.response.tool_loop import Bounds, ToolLoop
from trt_responses.response.tool_sessions import open_tools
from trt_responses.wire.dialect import OPENAI

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.engine.base import GenerateOptions
    from trt_responses.harmony.read.reader import Reader
    from trt_responses.harmony.steer.plans import SteeringPlan
    from trt_responses.response.accepted import Accepted
    from trt_responses.response.admission import Place
    from trt_responses.response.commit import Keep, Memory
    from trt_responses.response.log.entries import Spelling
    from trt_responses.response.log.item_events import Callee
    from trt_responses.response.log.machine import Mint
    from trt_responses.response.parts import Parts
    from trt_responses.response.prompt.prompt import Prompt
    from trt_responses.response.run import Addition
    from trt_responses.response.steering.steering import SteeringRequest
    from trt_responses.store.base import Block
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.response import Response

    NewSpelling = Callable[[Response, int], Spelling]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunInputs:
    """What one run is made from, besides the parts that all runs have."""

    accepted: Accepted
    owner: str
    arrival_ns: int
    keep: Keep | None = None
    """Takes its record instead of the store."""
    dialect: Dialect = OPENAI
    spelling: NewSpelling | None = None
    """Writes its log as another API's; made from the response and the number of the prompt's
    tokens."""
    memory: Memory | None = None
    """Is asked for what it continues, and told of what can be continued, be it stored or not."""


class Assembly:
    """Makes runs of inputs, and refuses what cannot be made before any token."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self, inputs: RunInputs, place: Place) -> Run:
        """A run that nobody makes yet; its place is told how long its prompt is."""
        parts, accepted, owner = self._parts, inputs.accepted, inputs.owner
        parts.inclusion.check(accepted.included)
        check_logprobs(accepted.sampling.logprobs, parts.engine.limits())
        if accepted.store:
            await parts.store.check()
        prompt = await prompt_of(accepted, parts, owner, inputs.memory or parts.store)
        compaction = self._compaction(accepted, prompt, owner)
        if compaction is not None:
            accepted = summarising(accepted)
            prompt = replace_slots(prompt, ids=await compaction.prompt_ids(prompt))
        steering = await self.steering(accepted, owner)
        called = callees(accepted.tools)
        parallel = self._parallel(accepted)
        kind, plan = self._plan(accepted, steering, called, prompt, parallel, compaction)
        tools = await self._tool_loop(accepted, steering, called, prompt.blocks, owner)
        place.line_up(len(prompt.ids))
        response = self._response(accepted, parallel)
        spelling = inputs.spelling
        log = Log(
            response, inputs.dialect, spelling(response, len(prompt.ids)) if spelling else None
        )
        reader = self._reader(accepted, parallel, tools)
        sealer = TurnSealer(parts.sealer, owner, prompt.date, reader, parts.renderer)
        generation = kind(
            prompt_ids=prompt.ids,
            plan=plan,
            options=_options(accepted, owner, inputs.arrival_ns, response.id),
            engine=parts.engine,
            reader=reader,
            machine=(
                SummaryMachine(log, called, _item_mint(response.id), Unwrapper)
                if compaction is not None
                else _machine(
                    accepted, log, called, sealer, tools, summaries=parts.thought_summaries
                )
            ),
            log=log,
            clock_ns=parts.clock_ns,
            tools=tools,
            place=place,
        )
        return Run(
            generation,
            commit=Commit(parts, prompt, owner, inputs.keep, inputs.memory, compaction),
            clock_s=parts.clock_s,
            clock_ns=parts.clock_ns,
            listeners=parts.listeners,
            owner=owner,
            additions=self._additions(accepted, sealer),
            truncated=prompt.truncated,
            unfollowed=tuple(left.place for left in steering.left),
            compaction=compaction,
        )

    async def count(self, accepted: Accepted, owner: str) -> int:
        """The input tokens of such a run."""
        await self.steering(accepted, owner)
        prompt = await prompt_of(accepted, self._parts, owner, self._parts.store)
        return len(prompt.ids)

    async def steering(self, accepted: Accepted, owner: str) -> SteeringRequest:
        """What is to be steered; refused before any work when it cannot be."""
        guides = self._parts.engine.limits().guides
        wanted = await self._parts.steering.request(accepted, guides, owner)
        for left in wanted.left:
            logger.debug("not followed: %s %s", left.place, left.why)
        return wanted

    def _plan(
        self,
        accepted: Accepted,
        steering: SteeringRequest,
        called: Mapping[str, Callee],
        prompt: Prompt,
        parallel: bool,
        compaction: Compaction | None,
    ) -> tuple[Callable[..., Generation], SteeringPlan]:
        """How it is generated: the kind of generation, and its segments."""
        budget = self._budget(accepted, len(prompt.ids) + len(accepted.begun))
        if compaction is not None:
            return partial(CompactionGeneration, compaction=compaction), steering.plan(budget)
        kind = ScoredGeneration if accepted.scored else Generation
        if not accepted.generates:
            return Prefill, Free(prefill.TOKENS)
        if parallel:
            return kind, steering.parallel_plan(budget, called, self._parts.max_calls)
        return kind, steering.plan(budget)

    def _budget(self, accepted: Accepted, prompt_tokens: int) -> int:
        context = self._parts.engine.limits().context_tokens
        refuse_longer(prompt_tokens, context - 1)
        room = context - prompt_tokens
        return min(room, accepted.max_output_tokens or room)

    def _compaction(self, accepted: Accepted, prompt: Prompt, owner: str) -> Compaction | None:
        if not accepted.compacts:
            return None
        parts = self._parts
        return Compaction(
            prompt.blocks, prompt.date, parts.renderer, parts.sealer, owner, parts.model
        )

    def _additions(self, accepted: Accepted, sealer: TurnSealer) -> list[Addition]:
        added: list[Addition] = [sealer.whole] if accepted.seals else []
        if accepted.included:
            added.append(partial(self._parts.inclusion.added, included=accepted.included))
        return added

    def _response(self, accepted: Accepted, parallel: bool) -> Response:
        """The response before its first event."""
        parts = self._parts
        return replace(
            accepted.echo,
            id=parts.mint("resp"),
            created_at=int(parts.clock_s()),
            model=parts.model,
            parallel_tool_calls=parallel,
        )

    async def _tool_loop(
        self,
        accepted: Accepted,
        steering: SteeringRequest,
        called: Mapping[str, Callee],
        blocks: Sequence[Block],
        owner: str,
    ) -> ToolLoop | None:
        """None for a request that offers no tool of the server's."""
        parts = self._parts
        used = await open_tools(accepted.built_in, parts.tools, called, blocks, owner)
        if not used:
            return None
        most = min(accepted.max_tool_calls or parts.max_tool_calls, parts.max_tool_calls)
        context = parts.engine.limits().context_tokens
        bounds = Bounds(context, accepted.max_output_tokens, most)
        return ToolLoop(
            used, called, steering.plan_after_tool, parts.renderer, bounds, parts.clock_ns
        )

    def _parallel(self, accepted: Accepted) -> bool:
        """Whether a turn may hold several calls. A call that is run here ends a turn."""
        wanted = accepted.parallel_calls and bool(accepted.tools) and not accepted.built_in
        return wanted and self._parts.max_calls > 1

    def _reader(self, accepted: Accepted, parallel: bool, tools: ToolLoop | None) -> Reader:
        parts = self._parts
        new_reader = parts.new_scored_reader if accepted.scored else parts.new_reader
        ending = tools.recipients if tools is not None else ()
        return new_reader(call_ends=not parallel, ending=ending)


def _options(accepted: Accepted, owner: str, arrival_ns: int, response_id: str) -> GenerateOptions:
    """What the engine is asked with, but for what each segment asks itself."""
    return replace(
        accepted.sampling,
        cache_salt=owner or None,  # cached tokens are never shared between owners
        arrival_ns=arrival_ns,
        request_id=response_id,
        trace_headers=ORIGIN.get().trace_headers,
    )


def _machine(
    accepted: Accepted,
    log: Log,
    called: Mapping[str, Callee],
    sealer: TurnSealer,
    tools: ToolLoop | None,
    *,
    summaries: bool,
) -> Machine:
    """What makes events of the model's text and writes them to the log."""
    return Machine(
        log,
        called,
        _item_mint(log.response.id),
        Unwrapper,
        sealer.thought if accepted.seals else None,
        answer_text=partial(StopText, accepted.stop) if accepted.stop else None,
        scored=accepted.scored,
        runners=tools.runners if tools is not None else None,
        summarised=summaries and accepted.summarised,
    )


def _item_mint(response_id: str) -> Mint:
    """Ids that say which response they are of; none comes twice."""
    numbers = itertools.count()
    return lambda prefix: item_id(prefix, response_id, next(numbers))

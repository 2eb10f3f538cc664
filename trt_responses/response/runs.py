"""Makes runs from accepted requests, counts those that are going on, and ends them all.

Knows seams only: which engine, store and clock there are is the app's affair.
"""

from __future__ import annotations

import itertools
import logging
from contextlib import ExitStack
from dataclasses import replace as replace_slots
from functools import partial
from typing import TYPE_CHECKING, Protocol

from trt_responses.errors import EngineUnavailable, refuse_longer
from trt_responses.frozen import replace
from trt_responses.harmony.read.custom_input import Unwrapper
from trt_responses.harmony.steer.plans import Free
from trt_responses.response import prefill
from trt_responses.response.compaction import (
    Compaction,
    CompactionGeneration,
    SummaryMachine,
    summarising,
)
from trt_responses.response.conversations import Writers, grown, locked
from trt_responses.response.generation import Generation
from trt_responses.response.log.log import Log
from trt_responses.response.log.machine import Machine
from trt_responses.response.logprobs import ScoredGeneration, check_logprobs
from trt_responses.response.origin import ORIGIN
from trt_responses.response.output_blocks import output_blocks
from trt_responses.response.prefill import Prefill
from trt_responses.response.prompt.prompt import prompt_of
from trt_responses.response.prompt.references import item_id
from trt_responses.response.run import Run
from trt_responses.response.seal.sealed_items import TurnSealer
from trt_responses.response.steering.tools import callees
from trt_responses.response.stop import StopText
from trt_responses.response.tool_loop import Bounds, ToolLoop
from trt_responses.response.tool_sessions import open_tools
from trt_responses.store.base import Record, Records
from trt_responses.wire.dialect import OPENAI

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from trt_responses.engine.base import GenerateOptions
    from trt_responses.errors import ApiError
    from trt_responses.harmony.read.reader import Reader
    from trt_responses.harmony.steer.plans import SteeringPlan
    from trt_responses.response.accepted import Accepted
    from trt_responses.response.admission import Place
    from trt_responses.response.lifecycle import Lifecycle
    from trt_responses.response.log.entries import Spelling
    from trt_responses.response.log.item_events import Callee
    from trt_responses.response.log.machine import Mint
    from trt_responses.response.parts import Parts
    from trt_responses.response.prompt.prompt import Prompt
    from trt_responses.response.run import Addition, Progress
    from trt_responses.response.steering.steering import SteeringRequest
    from trt_responses.store.base import Block
    from trt_responses.wire.dialect import Dialect
    from trt_responses.wire.response import Response

    Keep = Callable[[Record, Record | None, Run, Response], Awaitable[None]]
    """Takes a response's record, and the next version of the conversation that it is a part of."""
    NewSpelling = Callable[[Response, int], Spelling]

logger = logging.getLogger(__name__)

CONTINUABLE = ("completed", "incomplete")
"""How a response ends that can be gone on from."""


class Memory(Records, Protocol):
    """What a connection knows of its own responses, beside the store."""

    def remember(self, record: Record) -> None: ...


class Runs:
    """Starts runs, knows those that are going on, and ends them when the server must."""

    def __init__(self, parts: Parts, lifecycle: Lifecycle) -> None:
        self._parts = parts
        self._lifecycle = lifecycle
        self._running: set[Run] = set()
        self._starting = 0
        self.writers = Writers()
        self._writing: dict[Run, tuple[str, str]] = {}

    def __len__(self) -> int:
        return self._starting + len(self._running)

    @property
    def built_in(self) -> Mapping[str, str]:
        """The kinds of tools that the server runs, and the model's names for them."""
        return {kind: tool.name for kind, tool in self._parts.tools.items()}

    def progress(self) -> Iterator[Progress]:
        """Of all that are being made."""
        return (run.progress for run in self._running)

    async def start(
        self,
        accepted: Accepted,
        *,
        owner: str,
        arrival_ns: int,
        keep: Keep | None = None,
        dialect: Dialect = OPENAI,
        spelling: NewSpelling | None = None,
        memory: Memory | None = None,
    ) -> Run:
        """A run that its owner has to `make` or `release`, or an `ApiError` before any token.

        It has its place from here on, for its prompt may take long to tokenise. `keep` takes its
        record instead of the store; `spelling` writes its log as another API's, and is made from
        the response and the number of the prompt's tokens; `memory` is asked for what it continues,
        and told of what can be continued, be it stored or not.
        """
        self._check_ready()
        with ExitStack() as unless_started:
            if (conversation := accepted.conversation) is not None:
                self.writers.hold(conversation, owner)
                unless_started.callback(self.writers.free, conversation, owner)
            place = self._parts.admission.enter(owner)
            unless_started.callback(place.leave)
            self._starting += 1
            try:
                run = await self._run(
                    accepted, owner, place, arrival_ns, keep or self._put, dialect, spelling, memory
                )
                self._running.add(run)
            finally:
                self._starting -= 1
            unless_started.pop_all()
        if conversation is not None:
            self._writing[run] = (conversation, owner)
        return run

    async def count(self, accepted: Accepted, *, owner: str) -> int:
        """The input tokens that a response to the request would be made from."""
        await self._steering(accepted, owner)
        prompt = await prompt_of(accepted, self._parts, owner, self._parts.store)
        return len(prompt.ids)

    def release(self, run: Run) -> None:
        """Its place is free; if it has not been made, it will not be."""
        self._leave(run)
        run.abandon()

    async def _run(
        self,
        accepted: Accepted,
        owner: str,
        place: Place,
        arrival_ns: int,
        keep: Keep,
        dialect: Dialect,
        spelling: NewSpelling | None,
        memory: Memory | None,
    ) -> Run:
        parts = self._parts
        parts.inclusion.check(accepted.included)
        check_logprobs(accepted.sampling.logprobs, parts.engine.limits())
        if accepted.store:
            await parts.store.check()
        prompt = await prompt_of(accepted, parts, owner, memory or parts.store)
        compaction = self._compaction(accepted, prompt, owner)
        if compaction is not None:
            accepted = summarising(accepted)
            prompt = replace_slots(prompt, ids=await compaction.prompt_ids(prompt))
        steering = await self._steering(accepted, owner)
        budget = self._budget(accepted, len(prompt.ids) + len(accepted.begun))
        called = callees(accepted.tools)
        tools = await self._tool_loop(accepted, steering, called, prompt.blocks, owner)
        parallel = self._parallel(accepted)
        place.line_up(len(prompt.ids))
        response = self._response(accepted, parallel)
        written = spelling(response, len(prompt.ids)) if spelling else None
        log = Log(response, dialect, written)
        reader = self._reader(accepted, parallel, tools)
        sealer = TurnSealer(parts.sealer, owner, prompt.date, reader, parts.renderer)
        plan: SteeringPlan
        kind: Callable[..., Generation] = ScoredGeneration if accepted.scored else Generation
        if compaction is not None:
            kind, plan = partial(CompactionGeneration, compaction=compaction), steering.plan(budget)
        elif not accepted.generates:
            kind, plan = Prefill, Free(prefill.TOKENS)
        elif parallel:
            plan = steering.parallel_plan(budget, called, parts.max_calls)
        else:
            plan = steering.plan(budget)
        generation = kind(
            prompt_ids=prompt.ids,
            plan=plan,
            options=_options(accepted, owner, arrival_ns, response.id),
            engine=parts.engine,
            reader=reader,
            machine=(
                SummaryMachine(log, called, _item_mint(log.response.id), Unwrapper)
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
            commit=self._commit(prompt, owner, keep, memory, compaction),
            clock_s=parts.clock_s,
            clock_ns=parts.clock_ns,
            listeners=parts.listeners,
            owner=owner,
            additions=self._additions(accepted, sealer),
            truncated=prompt.truncated,
            unfollowed=tuple(left.place for left in steering.left),
            compaction=compaction,
        )

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

    async def make(self, run: Run) -> Response:
        """Make it; when it has ended, its place is free."""
        try:
            return await run.make()
        finally:
            self._leave(run)

    def _leave(self, run: Run) -> None:
        self._running.discard(run)
        if (written := self._writing.pop(run, None)) is not None:
            self.writers.free(*written)

    def fail_begun(self, error: ApiError) -> None:
        """All that the engine is at work on; those that wait for it go on waiting."""
        for run in tuple(self._running):
            if run.begun:
                run.fail(error)

    def fail_all(self, error: ApiError) -> None:
        for run in tuple(self._running):
            run.fail(error)

    def _check_ready(self) -> None:
        self._lifecycle.check_takes_work()
        if not (health := self._parts.engine.health()).ready:
            reason = (health.reason or "it is starting").removesuffix(".")
            raise EngineUnavailable(f"The engine is not ready: {reason}.", retry_after_s=5)

    async def _steering(self, accepted: Accepted, owner: str) -> SteeringRequest:
        """What is to be steered; refused before any work when it cannot be."""
        guides = self._parts.engine.limits().guides
        wanted = await self._parts.steering.request(accepted, guides, owner)
        for left in wanted.left:
            logger.debug("not followed: %s %s", left.place, left.why)
        return wanted

    def _budget(self, accepted: Accepted, prompt_tokens: int) -> int:
        context = self._parts.engine.limits().context_tokens
        refuse_longer(prompt_tokens, context - 1)
        room = context - prompt_tokens
        return min(room, accepted.max_output_tokens or room)

    def _commit(
        self,
        prompt: Prompt,
        owner: str,
        keep: Keep,
        memory: Memory | None,
        compaction: Compaction | None,
    ) -> Callable[[Response, Run], Awaitable[None]]:
        async def commit(last: Response, run: Run) -> None:
            stored = last.store and (last.status != "cancelled" or last.background)
            told = prompt.conversation is not None and last.status in CONTINUABLE
            if not (stored or told) and memory is None:
                return
            if compaction is not None:
                own = compaction.made(last)
            else:
                own = await output_blocks(last, run.reader, self._parts.renderer)
            record = Record(
                id=last.id,
                owner=owner,
                body=bytes(memoryview(run.log.json_of(last))),
                blocks=(*prompt.blocks, *own),
                prior_count=prompt.prior_count,
                input_count=len(prompt.blocks) - prompt.prior_count,
                continuable=last.status in CONTINUABLE,
                date=prompt.date,
                created_at=last.created_at,
            )
            conversation = self._grown(prompt.conversation, record) if told else None
            if stored:
                await keep(record, conversation, run, last)
            elif conversation is not None and not await self._parts.store.change(conversation):
                raise locked()
            if memory is not None and record.continuable:
                memory.remember(record)

        return commit

    def _grown(self, conversation: Record | None, record: Record) -> Record | None:
        """The conversation with what the response and its request have added."""
        if conversation is None:
            return None
        return grown(conversation, record.blocks, record.date, int(self._parts.clock_s()))

    async def _put(
        self, record: Record, conversation: Record | None, run: Run, last: Response
    ) -> None:
        if conversation is None:
            await self._parts.store.put(record)
        elif not await self._parts.store.change(conversation, record):
            raise locked()


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

"""Puts a run together from an accepted request: prompt, plan, reader, machine, log and commit.

Knows seams only: which engine, store and clock there are is the app's affair.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace as replace_slots
from functools import partial
from typing import TYPE_CHECKING

from trt_responses.accept.model_names import answered_name
from trt_responses.errors import InvalidRequest, refuse_longer
from trt_responses.features.background.replayed import Replayed, digest_of
from trt_responses.features.compaction.compaction import (
    CompactionGeneration,
    SummaryMachine,
    summarising,
)
from trt_responses.features.compaction.first import compacted_first, compaction_of
from trt_responses.features.hosted_tools.approvals import (
    Ledger,
    approved_calls,
    has_approvals,
    not_offered,
)
from trt_responses.features.hosted_tools.citations import CitationText
from trt_responses.features.hosted_tools.loop import ToolLoop
from trt_responses.features.hosted_tools.sessions import (
    OpenedTools,
    earlier_of,
    items_in,
    items_of,
    lists_functions,
    source_of,
)
from trt_responses.features.hosted_tools.taken import check_taken
from trt_responses.features.logprobs.logprobs import ScoredGeneration, check_logprobs
from trt_responses.features.prefill import prefill
from trt_responses.features.prefill.prefill import Prefill
from trt_responses.features.seal.sealed_items import TurnSealer
from trt_responses.features.stop.stop import StopText
from trt_responses.frozen import replace
from trt_responses.language.reader import ReaderOptions
from trt_responses.language.steering import Free
from trt_responses.log.custom_input import Unwrapper
from trt_responses.log.log import Log
from trt_responses.log.machine import Machine
from trt_responses.prompt.history import prior_of
from trt_responses.prompt.prompt import prompt_of
from trt_responses.prompt.references import item_id
from trt_responses.run.commit import Commit
from trt_responses.run.generation import Generation
from trt_responses.run.origin import ORIGIN
from trt_responses.run.run import Run
from trt_responses.run.second_chance import Bounds, SecondChance, Turns
from trt_responses.steering.tools import callees, clients_callees, shown
from trt_responses.tool import Opening

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.accept.accepted import Accepted
    from trt_responses.engine import Engine, GenerateOptions
    from trt_responses.features.background.replayed import Before
    from trt_responses.features.compaction.compaction import Compaction
    from trt_responses.features.hosted_tools.loop import Approved
    from trt_responses.language.reader import Reader
    from trt_responses.language.steering import SteeringPlan
    from trt_responses.log.item_events import Callee
    from trt_responses.log.machine import Mint
    from trt_responses.prompt.history import Prior
    from trt_responses.prompt.prompt import Prompt
    from trt_responses.run.admission import Place
    from trt_responses.run.inputs import RunInputs
    from trt_responses.run.parts import Parts
    from trt_responses.run.run import Addition
    from trt_responses.steering.steering import SteeringRequest
    from trt_responses.store import Records
    from trt_responses.wire.hosted_items import McpApprovalRequest
    from trt_responses.wire.response import Response

logger = logging.getLogger(__name__)


class Assembly:
    """Makes runs of inputs, and refuses what cannot be made before any token."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ledger = Ledger(parts.store)

    def new_id(self) -> str:
        """Of a response."""
        return self._parts.mint("resp")

    async def run(self, inputs: RunInputs, place: Place) -> Run:
        """A run that is not started yet. Its place is told how long its prompt is."""
        parts, accepted = self._parts, inputs.accepted
        parts.inclusion.check(accepted.included)
        check_taken(accepted, parts.dialect)
        check_logprobs(accepted.sampling.logprobs, parts.engine.limits())
        if accepted.store:
            await parts.store.check()
        opened = OpenedTools()
        try:
            return await self._run(inputs, place, opened)
        except BaseException:
            await opened.close()
            raise

    async def _run(self, inputs: RunInputs, place: Place, opened: OpenedTools) -> Run:
        parts, accepted, owner = self._parts, inputs.accepted, inputs.owner
        before, engine = inputs.before, self._parts.engine
        if before is not None:
            parts = replace_slots(parts, today=lambda: before.date)
        records = inputs.memory or parts.store
        accepted, prior, approved = await self._offered(accepted, owner, records, opened)
        prompt = await prompt_of(accepted, parts, owner, records, prior, approved)
        compaction = compaction_of(accepted, prompt, parts, owner)
        first = None if accepted.compacts else compaction
        if accepted.compacts and compaction is not None:
            accepted = summarising(accepted)
            prompt = replace_slots(prompt, ids=await compaction.prompt_ids(prompt))
        steering = await self.steering(accepted, owner)
        called = clients_callees(accepted.tools)
        parallel = self._parallel(accepted)
        plan_for = partial(self._plan, accepted, steering, called, parallel)
        kind, plan = self._kind(accepted, compaction), plan_for(len(prompt.ids))
        turns = self._turns(accepted, steering)
        tools = await self._tool_loop(accepted, turns, called, prompt, owner, opened, approved)
        second = _second_chance(accepted, called, turns, prompt, tools)
        await self._ledger.claim(approved, owner, inputs.response_id)
        place.line_up(len(prompt.ids))
        response = self._response(inputs.response_id, accepted, parallel, before)
        log = _log(inputs, response, len(prompt.ids))
        if before is not None:
            engine = _gone_on(engine, prompt, before, log)
        reader = self._reader(accepted, parallel, tools, prompt)
        vocabulary = parts.dialect.vocabulary
        sealer = TurnSealer(parts.sealer, owner, prompt.date, reader, parts.renderer, vocabulary)
        options = _options(accepted, owner, inputs.arrival_ns, response.id)
        preparation, mint = None, _item_mint(response.id)
        if first is not None:
            steered = await self.steering(summarising(accepted), owner)
            later = (tools, second)
            preparation = await compacted_first(
                first, prompt, accepted, parts, steered.plan, options, log, mint, plan_for, later
            )
        generation = kind(
            prompt_ids=prompt.ids,
            plan=plan,
            options=options,
            engine=engine,
            reader=reader,
            machine=_machine(
                accepted, log, called, mint, sealer, tools, summaries=parts.thought_summaries
            ),
            log=log,
            clock_ns=parts.clock_ns,
            tools=tools,
            place=place,
            recovery=parts.recovery,
            second=second,
            preparation=preparation,
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
            compaction=compaction if first is None else None,
            compacts_first=first is not None,
            date=prompt.date,
        )

    async def count(self, accepted: Accepted, owner: str) -> int:
        """The number of input tokens of such a run."""
        check_taken(accepted, self._parts.dialect)
        opened = OpenedTools()
        try:
            records = self._parts.store
            accepted, prior, _ = await self._offered(accepted, owner, records, opened)
            await self.steering(accepted, owner)
            prompt = await prompt_of(accepted, self._parts, owner, records, prior)
            return len(prompt.ids)
        finally:
            await opened.close()

    async def _offered(
        self, accepted: Accepted, owner: str, records: Records, opened: OpenedTools
    ) -> tuple[Accepted, Prior | None, Sequence[Approved]]:
        """The request with the functions that servers of tools offer, its history, and the calls
        that it approves. A request without such tools stays as it was."""
        tools = self._parts.tools
        if not self._parts.dialect.takes.namespaces:
            accepted = opened.as_functions(accepted, tools)
        listing = [one for one in accepted.built_in if lists_functions(tools[one.kind])]
        approves = "mcp" in tools and has_approvals(accepted)
        if not (listing or approves) or accepted.compacts:
            return accepted, None, ()
        prior = await prior_of(accepted, records, owner)
        functions = callees(accepted.tools)
        for one in listing:
            items = [*items_of(prior.blocks, one.kind), *items_in(accepted, one.kind)]
            opening = Opening(owner, one.place, one.options, items)
            await opened.open(one, tools[one.kind], opening, functions)

        def signed(request: McpApprovalRequest) -> bool:
            plain, _, signature = (request.id or "").partition(".")
            said = (plain, request.server_label, request.name, request.arguments)
            return self._parts.sealer.has_signed(signature, said, owner)

        approved = approved_calls(accepted, prior.blocks, signed)
        for call in approved:
            if call.tool(opened.used) is None:
                raise not_offered(call)
        return opened.shown(accepted), prior, approved

    async def steering(self, accepted: Accepted, owner: str) -> SteeringRequest:
        """The request's steering. Raises before any work when it cannot be done."""
        guides = self._parts.engine.limits().guides
        wanted = await self._parts.steering.request(accepted, guides, owner)
        for left in wanted.left:
            logger.debug("not followed: %s %s", left.place, left.why)
        return wanted

    def _kind(self, accepted: Accepted, compaction: Compaction | None) -> Callable[..., Generation]:
        """The class of the generation."""
        if accepted.compacts and compaction is not None:
            return partial(CompactionGeneration, compaction=compaction)
        if not accepted.generates:
            return Prefill
        return ScoredGeneration if accepted.scored else Generation

    def _plan(
        self,
        accepted: Accepted,
        steering: SteeringRequest,
        called: Mapping[str, Callee],
        parallel: bool,
        prompt_tokens: int,
    ) -> SteeringPlan:
        """The plan of the segments behind a prompt of so many tokens."""
        budget = self._budget(accepted, prompt_tokens + len(accepted.begun))
        if not accepted.generates:
            return Free(prefill.TOKENS)
        if parallel:
            return steering.parallel_plan(budget, called, self._parts.max_calls)
        return steering.plan(budget)

    def _budget(self, accepted: Accepted, prompt_tokens: int) -> int:
        context = self._parts.engine.limits().context_tokens
        refuse_longer(prompt_tokens, context - 1)
        room = context - prompt_tokens
        return min(room, accepted.max_output_tokens or room)

    def _additions(self, accepted: Accepted, sealer: TurnSealer) -> list[Addition]:
        added: list[Addition] = [sealer.whole] if accepted.seals else []
        if accepted.included:
            added.append(partial(self._parts.inclusion.added, included=accepted.included))
        return added

    def _response(
        self, response_id: str, accepted: Accepted, parallel: bool, before: Before | None
    ) -> Response:
        """The response before its first event."""
        parts = self._parts
        return replace(
            accepted.echo,
            id=response_id,
            created_at=before.created_at if before is not None else int(parts.clock_s()),
            model=answered_name(parts.model, accepted.sampling.adapter),
            parallel_tool_calls=parallel,
        )

    async def _tool_loop(
        self,
        accepted: Accepted,
        turns: Turns,
        called: Mapping[str, Callee],
        prompt: Prompt,
        owner: str,
        opened: OpenedTools,
        approved: Sequence[Approved],
    ) -> ToolLoop | None:
        """The loop of the server's tools; None for a request that offers none."""
        parts = self._parts
        for one in accepted.built_in:
            if not lists_functions(tool := parts.tools[one.kind]):
                earlier = earlier_of(prompt.blocks, one.kind, parts.dialect.lexicon)
                opening = Opening(owner, one.place, one.options, *earlier)
                await opened.open(one, tool, opening, called)
        if not accepted.built_in:
            return None
        assert prompt.continuation is not None, "who offers tools sends no ids"
        return ToolLoop(
            opened.used,
            turns,
            prompt.continuation,
            parts.clock_ns,
            opened.close,
            opened.listings,
            approved,
        )

    def _turns(self, accepted: Accepted, steering: SteeringRequest) -> Turns:
        most = self._parts.max_tool_calls
        most = min(accepted.max_tool_calls or most, most)
        context = self._parts.engine.limits().context_tokens
        return Turns(steering.plan_after_tool, Bounds(context, accepted.max_output_tokens, most))

    def _parallel(self, accepted: Accepted) -> bool:
        """Whether a turn may hold several calls. A call that is run here ends a turn."""
        wanted = accepted.parallel_calls and bool(accepted.tools) and not accepted.built_in
        return wanted and self._parts.max_calls > 1

    def _reader(
        self, accepted: Accepted, parallel: bool, tools: ToolLoop | None, prompt: Prompt
    ) -> Reader:
        parts = self._parts
        dialect = parts.dialect
        new_reader = dialect.scored_reader if accepted.scored else dialect.reader
        ending = tools.recipients if tools is not None else ()
        tools_shown = shown(accepted.tools)
        return new_reader(ReaderOptions(not parallel, ending, tools_shown, prompt.ids))


def _log(inputs: RunInputs, response: Response, prompt_tokens: int) -> Log:
    """An empty log, in the spelling of the API that the request came by."""
    spelling = inputs.spelling
    return Log(response, inputs.dialect, spelling(response, prompt_tokens) if spelling else None)


def _second_chance(
    accepted: Accepted,
    called: Mapping[str, Callee],
    turns: Turns,
    prompt: Prompt,
    tools: ToolLoop | None,
) -> SecondChance | None:
    """The second chance of a run that answers a conversation."""
    if accepted.compacts or not accepted.generates:
        return None
    built_in = {used.shown_as for used in tools.used} if tools is not None else ()
    return SecondChance(shown(accepted.tools), called, built_in, turns, prompt.continuation)


def _gone_on(engine: Engine, prompt: Prompt, before: Before, log: Log) -> Engine:
    """The engine, which first gives the ids that another server's gave. Raises when the prompt was
    another one."""
    if digest_of(prompt.ids) != before.prompt_digest:
        raise InvalidRequest("What the response goes on from has changed.", code="history_changed")
    if not before.ids:
        return engine
    return Replayed(engine, len(prompt.ids), before.ids, lambda: log.renumber(before.events))


def _options(accepted: Accepted, owner: str, arrival_ns: int, response_id: str) -> GenerateOptions:
    """The options of the engine's requests, but for those that each segment sets itself."""
    return replace(
        accepted.sampling,
        cache_salt=owner or None,  # cached tokens are never shared between owners
        arrival_ns=arrival_ns,
        request_id=response_id,
        metrics="metrics" in accepted.included,
        trace_headers=ORIGIN.get().trace_headers,
    )


def _machine(
    accepted: Accepted,
    log: Log,
    called: Mapping[str, Callee],
    mint: Mint,
    sealer: TurnSealer,
    tools: ToolLoop | None,
    *,
    summaries: bool,
) -> Machine:
    """The machine that makes events of the model's text and appends them to the log."""
    if accepted.compacts:
        return SummaryMachine(log, called, mint, Unwrapper)
    source = source_of(tools.used) if tools is not None and accepted.answer is None else None
    return Machine(
        log,
        called,
        mint,
        Unwrapper,
        sealer.thought if accepted.seals else None,
        answer_text=partial(StopText, accepted.stop) if accepted.stop else None,
        scored=accepted.scored,
        runners=tools.runners if tools is not None else None,
        summarised=summaries and accepted.summarised,
        cited_text=partial(CitationText, source) if source is not None else None,
        sign=partial(sealer.sealer.signature, owner=sealer.owner),
    )


def _item_mint(response_id: str) -> Mint:
    """A function that gives ids which say which response they are of; none comes twice."""
    numbers = itertools.count()
    return lambda prefix: item_id(prefix, response_id, next(numbers))

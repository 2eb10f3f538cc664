"""Puts a run together from a request: history, prompt, plan, log, reader, machine.

Knows seams only: which engine, store, clock and features there are is the app's affair.
"""

from __future__ import annotations

import itertools
import logging

from trt_responses.accept.accepted import Accepted
from trt_responses.accept.model_names import answered_name
from trt_responses.dialect import EVERYTHING
from trt_responses.engine import GenerateOptions
from trt_responses.frozen import replace
from trt_responses.language.reader import Reader, ReaderOptions
from trt_responses.log.log import Log
from trt_responses.log.machine import Mint
from trt_responses.prompt.history import NO_PRIOR, prior_of
from trt_responses.prompt.prompt import prompt_of
from trt_responses.run.commit import commit_run
from trt_responses.run.draft import Draft
from trt_responses.run.generation import Joints
from trt_responses.run.origin import ORIGIN
from trt_responses.run.parts import item_id
from trt_responses.run.run import Run
from trt_responses.run.turns import Bounds, Turns
from trt_responses.steering.steering import SteeringRequest
from trt_responses.steering.support import check_supported
from trt_responses.steering.tools import clients_callees, shown
from trt_responses.wire.response import Response

logger = logging.getLogger(__name__)

TOOL_CALLS, MOST_TOOL_CALLS = 32, 128
"""Calls of the server's own tools in one response, and how many a request may ask for: a question
takes fewer, deep research more."""


async def assembled(draft: Draft) -> Run:
    """A run that is not started yet, or an `ApiError`: then the caller releases the draft. Its
    place learns the length of its prompt."""
    parts = draft.parts
    draft.limits = parts.engine.limits()
    for acquire in draft.joints["acquire"]:
        await acquire(draft)
    if parts.dialect.takes != EVERYTHING:
        check_supported(draft.accepted, parts.dialect)
    if draft.accepted.store:
        await parts.store.check()
    await _show(draft)
    for prompted in draft.joints["prompted"]:
        await prompted(draft)
    draft.steering = await steering_of(draft, draft.accepted)
    _plan(draft)
    plan = draft.plan_for(len(draft.prompt.ids))
    for planned in draft.joints["planned"]:
        await planned(draft)
    draft.place.line_up(len(draft.prompt.ids))
    _write(draft)
    second = None
    if draft.answers and parts.second_chance is not None:
        second = parts.second_chance(draft.called, draft.tool_names, draft.turns)
    generation = draft.generation(
        prompt_ids=draft.prompt.ids,
        plan=plan,
        options=draft.options,
        engine=draft.engine,
        reader=draft.reader,
        machine=draft.machine(draft.log, draft.called, draft.mint, **draft.machine_options),
        log=draft.log,
        clock_ns=parts.clock_ns,
        place=draft.place,
        resume=draft.resume,
        joints=Joints(draft.joints["before"], draft.joints["after"], second),
        notes=draft.notes,
        sink=draft.sink,
        recorder=parts.recorder,
    )
    return Run(generation, draft, commit_run)


async def counted(draft: Draft) -> int:
    """The number of input tokens of such a run."""
    draft.limits = draft.parts.engine.limits()
    try:
        check_supported(draft.accepted, draft.parts.dialect)
        await _show(draft)
        await steering_of(draft, draft.accepted)
        return len(draft.prompt.ids)
    finally:
        await draft.release()


async def steering_of(draft: Draft, accepted: Accepted) -> SteeringRequest:
    """A request's steering. Raises before any work when it cannot be done."""
    steering = draft.parts.steering
    wanted = await steering.request(accepted, draft.limits.guides, draft.owner)
    for left in wanted.left:
        logger.debug("ignoring schema keyword %s: %s", left.place, left.why)
    return wanted


async def _show(draft: Draft) -> None:
    """Set what the model is shown."""
    for offer in draft.joints["offer"]:
        await offer(draft)
    if draft.prior is None and draft.accepted.previous_response_id is None:
        draft.prior = NO_PRIOR
    elif draft.prior is None:
        draft.prior = await prior_of(draft.accepted, draft.records, draft.owner)
    draft.prompt = await prompt_of(draft, draft.prior)
    draft.notes.continuation = draft.prompt.continuation


def _plan(draft: Draft) -> None:
    """Set what plans are made of."""
    parts, accepted, steering = draft.parts, draft.accepted, draft.steering
    if accepted.tools:
        draft.called = dict(clients_callees(accepted.tools))  # to which steps add their own
        draft.notes.offered = shown(accepted.tools)
    # A call that is run here ends a turn.
    several = accepted.parallel_calls and bool(accepted.tools) and not accepted.built_in
    draft.parallel = several and parts.max_calls > 1
    calls = min(accepted.max_tool_calls or TOOL_CALLS, MOST_TOOL_CALLS)
    context = draft.limits.context_tokens
    draft.turns = Turns(
        steering.plan_after_tool, Bounds(context, accepted.max_output_tokens, calls)
    )


def _write(draft: Draft) -> None:
    """Set the log, and what reads the model and tells of it."""
    request, accepted = draft.request, draft.accepted
    response, spelling = _response(draft), request.spelling
    spelled = spelling(response, len(draft.prompt.ids)) if spelling else None
    draft.log = Log(response, request.dialect, spelled)
    draft.mint = _item_mint(draft.id)
    draft.reader = _reader(draft)
    draft.options = _options(draft)
    draft.machine_options["scored"] = accepted.sampling.logprobs is not None
    for write in draft.joints["write"]:
        write(draft)


def _response(draft: Draft) -> Response:
    """The response before its first event."""
    parts, accepted, created_at = draft.parts, draft.accepted, draft.created_at
    return replace(
        accepted.echo,
        id=draft.id,
        created_at=int(parts.clock_s()) if created_at is None else created_at,
        model=parts.model
        if (adapter := accepted.sampling.adapter) is None
        else (answered_name(parts.model, adapter)),
        parallel_tool_calls=draft.parallel,
    )


def _reader(draft: Draft) -> Reader:
    offered, ids = draft.notes.offered, draft.prompt.ids
    options = ReaderOptions(not draft.parallel, draft.recipients, offered, ids)
    return draft.parts.dialect.reader(options)


def _options(draft: Draft) -> GenerateOptions:
    """The options of the engine's requests, but for those that each segment sets itself."""
    return replace(
        draft.accepted.sampling,
        cache_salt=draft.owner or None,  # cached tokens are never shared between owners
        arrival_ns=draft.request.arrival_ns,
        request_id=draft.id,
        trace_headers=ORIGIN.get().trace_headers,
    )


def _item_mint(response_id: str) -> Mint:
    """A function that gives ids which say which response they are of; none comes twice."""
    numbers = itertools.count()
    return lambda prefix: item_id(prefix, response_id, next(numbers))

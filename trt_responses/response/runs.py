"""From a request to a run: what a run needs is put together here, and running runs are counted.

Knows seams only: which engine, store and clock there are is the app's affair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from trt_responses.engine.base import GenerateOptions
from trt_responses.errors import EngineUnavailable, InvalidRequest, Overloaded
from trt_responses.harmony import conversation
from trt_responses.harmony.render import Developer, FunctionTool, System, kept
from trt_responses.harmony.steer import Free
from trt_responses.response.history import output_blocks, prior_of
from trt_responses.response.log import Log
from trt_responses.response.machine import Callee, Machine
from trt_responses.response.run import Run
from trt_responses.store.base import Record
from trt_responses.wire.request import FunctionTool as FunctionToolParam
from trt_responses.wire.response import opened

if TYPE_CHECKING:
    from array import array
    from collections.abc import Awaitable, Callable, Mapping

    from trt_responses.engine.base import Engine
    from trt_responses.errors import ApiError
    from trt_responses.harmony.read import Reader
    from trt_responses.harmony.render import Effort as HarmonyEffort
    from trt_responses.harmony.render import Renderer
    from trt_responses.response.machine import Mint
    from trt_responses.response.run import Listener
    from trt_responses.store.base import Block, Store
    from trt_responses.wire.request import Effort, Request
    from trt_responses.wire.response import Response

EFFORTS: Mapping[Effort | None, HarmonyEffort] = {
    None: "medium",
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""gpt-oss knows three; the others go to the nearest, and are echoed as they were asked."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What every run is made of."""

    engine: Engine
    store: Store
    renderer: Renderer
    new_reader: Callable[[], Reader]
    model: str
    identity: str
    knowledge_cutoff: str
    max_running: int
    mint: Mint
    today: Callable[[], str]
    clock_s: Callable[[], float]
    clock_ns: Callable[[], int]
    listener: Listener | None = None


@dataclass(frozen=True, slots=True)
class _Prompt:
    ids: array[int]
    blocks: tuple[Block, ...]
    prior_count: int
    date: str


class Runs:
    """Starts runs, knows those that are going on, and ends them when the server must."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._running: set[Run] = set()
        self.draining = False

    def __len__(self) -> int:
        return len(self._running)

    async def start(self, request: Request, *, owner: str, arrival_ns: int) -> Run:
        """A run that its owner can `make`, or an `ApiError` before any token."""
        self._admit()
        prompt = await self._prompt(request, owner)
        parts = self._parts
        budget = self._budget(request, len(prompt.ids))
        response = opened(
            request, id=parts.mint("resp"), created_at=int(parts.clock_s()), model=parts.model
        )
        log = Log(response)
        return Run(
            prompt_ids=prompt.ids,
            plan=Free(budget),
            options=_options(request, response.id, arrival_ns),
            engine=parts.engine,
            reader=parts.new_reader(),
            machine=Machine(log, _callees(request), parts.mint),
            log=log,
            commit=self._commit(prompt, owner),
            clock_s=parts.clock_s,
            clock_ns=parts.clock_ns,
            listener=parts.listener,
        )

    async def make(self, run: Run) -> Response:
        """Make it, counted among the running ones until it has ended."""
        self._running.add(run)
        try:
            return await run.make()
        finally:
            self._running.discard(run)

    def fail_all(self, error: ApiError) -> None:
        for run in tuple(self._running):
            run.fail(error)

    def _admit(self) -> None:
        if self.draining:
            raise EngineUnavailable("The server is shutting down.", retry_after_s=5)
        if not (health := self._parts.engine.health()).ready:
            reason = (health.reason or "it is starting").removesuffix(".")
            raise EngineUnavailable(f"The engine is not ready: {reason}.", retry_after_s=5)
        if len(self._running) >= self._parts.max_running:
            raise Overloaded(
                f"{len(self._running)} responses are being made, which is all this server takes.",
                retry_after_s=1,
            )

    async def _prompt(self, request: Request, owner: str) -> _Prompt:
        parts = self._parts
        renderer, context = parts.renderer, parts.engine.limits().context_tokens
        prior = await prior_of(request.previous_response_id, parts.store, owner)
        date = prior.date or parts.today()
        brought = await conversation.input_blocks(request.input, renderer, prior.blocks, context)
        if not request.input and not prior.blocks:
            raise InvalidRequest(
                "'input' is empty: send a text, or at least one item.",
                param="input",
                code="invalid_value",
            )
        blocks = (*prior.blocks, *brought)
        selected = kept([block.kind for block in blocks])
        ids = renderer.join(
            await renderer.system(_system(request, parts, date)),
            await renderer.developer(_developer(request), context),
            [block.ids for block, keep in zip(blocks, selected, strict=True) if keep],
        )
        return _Prompt(ids, blocks, len(prior.blocks), date)

    def _budget(self, request: Request, prompt_tokens: int) -> int:
        context = self._parts.engine.limits().context_tokens
        room = context - prompt_tokens
        if room < 1:
            raise InvalidRequest(
                f"The prompt has {prompt_tokens} tokens and the model's context {context}: "
                "shorten the input.",
                param="input",
                code="context_length_exceeded",
            )
        return min(room, request.max_output_tokens or room)

    def _commit(self, prompt: _Prompt, owner: str) -> Callable[[Response, Run], Awaitable[None]]:
        async def commit(last: Response, run: Run) -> None:
            if not last.store or last.status == "cancelled":
                return
            own = await output_blocks(last, run.reader, self._parts.renderer)
            await self._parts.store.put(
                Record(
                    id=last.id,
                    owner=owner,
                    body=bytes(memoryview(orjson.dumps(last))),
                    blocks=(*prompt.blocks, *own),
                    prior_count=prompt.prior_count,
                    input_count=len(prompt.blocks) - prompt.prior_count,
                    continuable=last.status in ("completed", "incomplete"),
                    date=prompt.date,
                )
            )

        return commit


def _options(request: Request, response_id: str, arrival_ns: int) -> GenerateOptions:
    return GenerateOptions(
        max_tokens=0,  # each segment brings its own budget and stop ids
        stop_ids=(),
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=request.top_k or 0,
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        seed=request.seed,
        arrival_ns=arrival_ns,
        request_id=response_id,
    )


def _system(request: Request, parts: Parts, date: str) -> System:
    effort = request.reasoning.effort if request.reasoning else None
    return System(
        identity=parts.identity,
        knowledge_cutoff=parts.knowledge_cutoff,
        date=date,
        effort=EFFORTS[effort],
        has_function_tools=bool(_functions(request)),
    )


def _functions(request: Request) -> list[FunctionToolParam]:
    return [tool for tool in request.tools or () if isinstance(tool, FunctionToolParam)]


def _developer(request: Request) -> Developer:
    tools = tuple(
        FunctionTool(tool.name, tool.description or "", tool.parameters)
        for tool in _functions(request)
    )
    return Developer(instructions=request.instructions, tools=tools)


def _callees(request: Request) -> dict[str, Callee]:
    """Recipients as the model writes them: with Harmony's namespace, and without it by mistake."""
    callees = {}
    for tool in _functions(request):
        callees[tool.name] = callees[conversation.FUNCTIONS + tool.name] = Callee(tool.name)
    return callees

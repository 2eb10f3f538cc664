"""What a request gives back: one object that changes at every step, its traps included."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.double.llm import LLM
    from tests.support.double.words import LoRARequest, SamplingParams, SchedulingParams


class Hang(NamedTuple):
    """From here this request never goes on."""


class Fail(NamedTuple):
    """The request raises here."""

    error: Exception


Step = tuple[int, ...] | Hang | Fail


class Script(NamedTuple):
    """The model's ids, as they come: several per step, or none. Then it would end by itself."""

    steps: tuple[Step, ...]
    cached_tokens: int = 0
    full: bool = False
    """With its last step nothing more fits: it ends for its length."""
    surprise: bool = False
    """Every chosen id is less likely than all its alternatives."""
    tops: Mapping[int, float] | None = None
    """The likeliest ids with their log probabilities, at each step."""


class MetricNames(Enum):
    """As in `tensorrt_llm.metrics`: the keys of `metrics_dict`, beside words of its own."""

    TTFT = "ttft"
    REQUEST_QUEUE_TIME = "request_queue_time"


class Logprob(NamedTuple):
    logprob: float
    rank: int


@dataclass(slots=True)
class CompletionOutput:
    """One object, changed at every step."""

    index: int = 0
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Mapping[int, Logprob] | float] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class Response(NamedTuple):
    """What a worker sends for one step."""

    token_ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    stop_reason: int | None = None
    error: Exception | None = None


class RequestOutput:
    """A result: yields itself, changed; after a raise it is never done, and waits for ever."""

    def __init__(
        self, llm: LLM, request_id: int, prompt_ids: list[int], params: SamplingParams
    ) -> None:
        self.request_id = request_id
        self.prompt_token_ids = prompt_ids
        self.sampling_params = params
        self.outputs = [CompletionOutput()]
        self.cached_tokens = 0
        self.metrics_dict: dict[object, float | str] = {}
        self.trace_headers: Mapping[str, str] | None = None
        self.cache_salt: str | None = None
        self.priority: float | None = None
        self.scheduling_params: SchedulingParams | None = None
        self.lora_request: LoRARequest | None = None
        self.kv_cache_retention_config: object = None
        self.script = Script(())
        self.position = 0
        self.made = 0
        self.running = False
        self._llm = llm
        self._done = False
        self._aborted = False
        self._raised = False
        self.awaits_after_abort = 0
        self._queue: asyncio.Queue[Response] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
            self._queue = asyncio.Queue()

    @property
    def finished(self) -> bool:
        return self._done

    def abort(self) -> None:
        self._llm.plan.check("abort")
        self._aborted = True
        self._llm.cancel(self)

    def aborted(self) -> bool:
        return self._aborted

    def __aiter__(self) -> RequestOutput:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._done:
            raise StopAsyncIteration
        assert self._queue is not None, "There was no event loop when the request was made."
        self.awaits_after_abort += self._aborted
        if self._raised:
            self._llm.plan.misuse.append("a result that had raised was awaited again")
        self._handle(await self._queue.get())
        while self._llm.plan.coalesces and not self._done and not self._queue.empty():
            self._handle(self._queue.get_nowait())
        return self

    async def aresult(self) -> RequestOutput:
        async for _ in self:
            pass
        return self

    def send(self, response: Response) -> None:
        """From the loop's own thread, or from a worker's."""
        if self._queue is None or self._loop is None:
            return
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            self._queue.put_nowait(response)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, response)

    def _handle(self, response: Response) -> None:
        if response.error is not None:
            self._raised = True
            raise response.error
        output, params = self.outputs[0], self.sampling_params
        self.cached_tokens = self.script.cached_tokens
        output.token_ids.extend(response.token_ids)
        if params.logprobs is not None:
            output.logprobs.extend(self._logprobs(token_id) for token_id in response.token_ids)
        if response.finish_reason is None:
            return
        self._done = True
        output.finish_reason = response.finish_reason
        output.stop_reason = response.stop_reason
        if response.stop_reason is not None and not params.include_stop_str_in_output:
            output.token_ids = output.token_ids[:-1]
        if params.return_perf_metrics:
            self.metrics_dict = {
                MetricNames.TTFT: 0.25,
                MetricNames.REQUEST_QUEUE_TIME: 0.125,
                "finished_reason": response.finish_reason,
            }

    def _logprobs(self, token_id: int) -> Mapping[int, Logprob] | float:
        if self._llm.plan.flat_logprobs:
            return -0.25
        if self.script.tops is not None:
            ranked = enumerate(self.script.tops.items(), 1)
            return {each: Logprob(value, rank) for rank, (each, value) in ranked}
        count, chosen = self.sampling_params.logprobs or 0, -9.0 if self.script.surprise else -0.25
        chosen -= 0.125 * (self.lora_request is not None)
        found = {token_id: Logprob(chosen, count + 1 if self.script.surprise else 1)}
        others = count if self.script.surprise else count - 1
        return found | {token_id + n: Logprob(-0.5 - n, n) for n in range(1, others + 1)}

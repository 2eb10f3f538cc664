"""The engine with static slots: compiled TensorRT plans, or their graph on onnxruntime.

The event loop's side: it owns sinks and handles and never waits for a step; a thread schedules and
computes. It does not import the executor's library: a function passed in creates the executor.
"""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from trt_responses.engine import Chunk, Health, Limits
from trt_responses.engines.admission import room
from trt_responses.engines.grammar import grammar
from trt_responses.engines.tensorrt import guides
from trt_responses.engines.tensorrt.guides import GuideFault, Guides
from trt_responses.engines.tensorrt.request import Request
from trt_responses.engines.tensorrt.sampler import Sampler
from trt_responses.engines.tensorrt.thread import Callbacks, ComputingThread
from trt_responses.errors import EngineUnavailable, StartupError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.engine import GenerateOptions, Loss, Sink
    from trt_responses.engines.tensorrt.batch import Emitted
    from trt_responses.engines.tensorrt.executor import Executor
    from trt_responses.tokens.vocabulary import Vocabulary

MAX_LOGPROBS = 20
STALL_S = 120.0
"""Seconds after which an unfinished step counts as stalled."""


class TensorRtEngine:
    """`make` loads the executor on the engine's thread. `slots`, `context_tokens` and `top` come
    from the prepared engine's card."""

    def __init__(
        self,
        make: Callable[[], Executor],
        vocabulary: Vocabulary,
        *,
        slots: int,
        context_tokens: int,
        top: int,
        stall_s: float = STALL_S,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._make = make
        most = min(MAX_LOGPROBS, top)
        self._limits = Limits(context_tokens, slots, guides.GUIDES, most)
        self._guides = Guides(vocabulary)
        self._compiler = ThreadPoolExecutor(1, "guides")
        self._stall_s = stall_s
        self._now_ns = now_ns
        self._seeds = random.Random()
        self._requests: dict[Request, None] = {}
        self._vocabulary_size = 0
        self._thread: ComputingThread | None = None
        self._up: asyncio.Future[None] | None = None
        self._ended = asyncio.Event()
        self._watch: asyncio.TimerHandle | None = None
        self._down: str | None = "The engine has not been started."
        self._alive = True
        self._stopping = False
        self._began_ns = now_ns()

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._loop.run_in_executor(self._compiler, self._guides.load)
        self._up = self._loop.create_future()
        callbacks = Callbacks(self._loaded, self._emit, self._on_loss)
        self._thread = ComputingThread(
            self._make, self._limits, callbacks, self._loop, self._now_ns
        )
        await self._up
        self._look()

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Request:
        if self._down is not None:
            raise EngineUnavailable(self._down)
        assert self._thread is not None
        left = room(len(prompt_ids), options, self._limits)
        guide_grammar = None if options.guide is None else grammar(options.guide)
        seed = self._seeds.getrandbits(32) if options.seed is None else options.seed
        sampler = Sampler(options, seed, self._vocabulary_size)
        request = Request(prompt_ids, options, left, sampler, sink, self._over)
        self._requests[request] = None
        if left <= 0:
            self._loop.call_soon(request.emit, Chunk(finish="length"))
        elif guide_grammar is None:
            self._thread.put(request)
        else:
            self._compiler.submit(self._guided, request, guide_grammar, self._thread)
        return request

    def health(self) -> Health:
        last = self._began_ns if self._thread is None else self._thread.last_progress_ns
        used = sum(each.written for each in self._requests)
        use = used / (self._limits.context_tokens * self._limits.max_batch)
        return Health(self._alive, self._down is None, last, self._down, use)

    def limits(self) -> Limits:
        return self._limits

    async def stop(self, deadline_s: float) -> None:
        """Stop within the deadline. A longer step is left to its thread, which ends with the
        process."""
        self._stopping = True
        self._fall("The engine has been stopped.")
        self._compiler.shutdown(wait=False, cancel_futures=True)
        if self._thread is None:
            return
        self._thread.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._ended.wait()

    def _guided(self, request: Request, guide_grammar: str, thread: ComputingThread) -> None:
        """Compile the guide of a request, on the compiler's thread, since that is slow."""
        try:
            request.following = self._guides.follow(guide_grammar)
        except GuideFault as fault:
            end = Chunk(finish="error", error=str(fault))
            self._loop.call_soon_threadsafe(request.emit, end)
        else:
            thread.put(request)

    def _loaded(self, vocabulary_size: int) -> None:
        self._vocabulary_size = vocabulary_size
        if self._stopping or self._up is None or self._up.done():  # `start` was cancelled
            return
        self._down = None
        self._up.set_result(None)

    def _emit(self, emitted: Emitted) -> None:
        for request, chunk in emitted:  # a push may abort any of them
            request.emit(chunk)

    def _on_loss(self, reason: str) -> None:
        if self._up is not None and not self._up.done():
            self._up.set_exception(StartupError(reason))
        if not self._stopping:
            self._lose(reason)
        self._ended.set()

    def _over(self, request: Request) -> None:
        self._requests.pop(request, None)

    def _lose(self, reason: str) -> None:
        """Note that the executor is lost. It is not restarted, so this engine stays down."""
        self._alive = False
        self._fall(reason, "died")

    def _fall(self, reason: str, lost: Loss | None = None) -> None:
        self._down = reason
        if self._watch is not None:
            self._watch.cancel()
        for request in tuple(self._requests):
            request.fail(reason, lost)

    def _look(self) -> None:
        """Check for a stalled step."""
        began = None if self._thread is None else self._thread.step_began_ns
        if began is not None and self._now_ns() - began > self._stall_s * 1e9:
            self._lose(f"The engine's step takes longer than {self._stall_s:g} s.")
        elif self._alive and not self._stopping:
            self._watch = self._loop.call_later(self._stall_s / 4, self._look)

"""The embedded engine: llama.cpp in a child process, which may die without taking the server.

Knows the line before the slots, and which requests run; the child's life is in
`keeper`, the words spoken with it in `body` and `events`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
import time
from collections import deque
from typing import TYPE_CHECKING

from trt_responses.engine.admission import room
from trt_responses.engine.base import Chunk, GenerateOptions, Guide, Health, Limits
from trt_responses.engine.llamacpp import body
from trt_responses.engine.llamacpp.keeper import Keeper, Patience
from trt_responses.engine.llamacpp.process import Child, Model, check_file, spare_cores
from trt_responses.engine.llamacpp.quarantine import Quarantine
from trt_responses.engine.llamacpp.stream import Answer, Stream
from trt_responses.engine.slots import Slots
from trt_responses.errors import EngineUnavailable, StartupError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from trt_responses.engine.base import Sink

logger = logging.getLogger(__name__)

MAX_LOGPROBS = 20
PROBE = GenerateOptions(max_tokens=1, stop_ids=(), temperature=0.0)
CANARY = GenerateOptions(
    max_tokens=16,
    stop_ids=(),
    temperature=0.0,
    guide=Guide("json_schema", '{"const": "yes, déjà"}'),
)
"""Forced letters beyond ASCII are where a guide breaks off when a model file lacks its merges."""
PROBE_IDS = (0,)


class LlamaCppEngine:
    """Serves one GGUF. `context_tokens` is what one request has, prompt and answer together."""

    def __init__(
        self,
        model_path: Path,
        *,
        context_tokens: int = 8192,
        slots: int = 4,
        threads: int | None = None,
        patience: Patience | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_ns: Callable[[], int] = time.monotonic_ns,
        seeds: random.Random | None = None,
        spelled: Callable[[str], str] = str,
    ) -> None:
        """`spelled` writes a guide in the characters of the model file."""
        self._model = Model(model_path, context_tokens, slots, threads or spare_cores())
        self._limits = Limits(context_tokens, slots, body.GUIDES, MAX_LOGPROBS)
        self._patience = patience or Patience()
        self._keeper = Keeper(
            self._model,
            self._patience,
            prove=self._prove,
            on_up=self._up,
            on_down=self._fell,
            sleep=sleep,
        )
        self._now_ns = now_ns
        self._seeds = seeds or random.Random()
        self._spelled = spelled
        self._quarantine = Quarantine()
        self._suspects: deque[Sequence[int]] = deque(maxlen=slots)
        self._slots = Slots(slots)
        self._line: list[tuple[float, int, Stream]] = []
        self._arrivals = itertools.count()
        self._running: dict[Stream, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._probing = False
        self._down: str | None = "The engine has not been started."
        self._changed = asyncio.Event()
        self._last_progress_ns = now_ns()

    async def start(self) -> None:
        check_file(self._model.path)
        await self._keeper.start()

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Stream:
        if self._down is not None:
            raise EngineUnavailable(self._down, retry_after_s=1 if self._keeper.alive else None)
        left = room(len(prompt_ids), options, self._limits)
        self._quarantine.check(prompt_ids)
        seed = self._seeds.getrandbits(32) if options.seed is None else options.seed
        words = body.words(prompt_ids, options, left, seed, self._spelled)
        stream = Stream(prompt_ids, options, words, sink, self._over, self._now_ns)
        if left <= 0:
            asyncio.get_running_loop().call_soon(stream.end, Chunk(finish="length"))
        else:
            heapq.heappush(self._line, (-options.priority, next(self._arrivals), stream))
            self._dispatch()
        return stream

    def health(self) -> Health:
        heard = (stream.last_byte_ns for stream in self._running)
        last = max(self._last_progress_ns, *heard, 0)
        return Health(self._keeper.alive, self._down is None, last, self._down)

    def limits(self) -> Limits:
        return self._limits

    async def settled(self) -> Health:
        """Wait until it takes work, or never will again."""
        while self._down is not None and self._keeper.alive:
            await self._changed.wait()
        return self.health()

    async def stop(self, deadline_s: float) -> None:
        self._end_all("The engine has been stopped.")
        await self._keeper.stop(deadline_s)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _up(self) -> None:
        self._down = None
        self._probing = False
        self._changed.set()
        self._last_progress_ns = self._now_ns()
        self._watch_on()
        self._dispatch()

    def _fell(self, reason: str) -> None:
        """The child is gone: whatever it was at work on is a suspect."""
        if self._watch is not None:
            self._watch.cancel()
        self._down = reason
        self._changed.clear()
        for prompt_ids in (*self._suspects, *(stream.prompt_ids for stream in self._running)):
            self._quarantine.blame(prompt_ids)
        self._suspects.clear()
        for stream in tuple(self._running):
            stream.fail(reason)
        self._slots = Slots(self._model.slots)
        if not self._keeper.alive:
            self._end_all(reason)

    def _end_all(self, reason: str) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._down = reason
        self._changed.set()
        for stream in (*self._running, *(entry[2] for entry in self._line)):
            stream.fail(reason)
        self._line.clear()

    def _dispatch(self) -> None:
        """Give free slots to those who wait, by priority and then by arrival."""
        while self._line and self._slots and self._down is None and not self._probing:
            stream = heapq.heappop(self._line)[2]
            if not stream.over:
                self._connect(stream)

    def _connect(self, stream: Stream, child: Child | None = None) -> None:
        child = child or self._keeper.child
        assert child is not None
        stream.slot = self._slots.take(stream.prompt_ids, stream.options.cache_salt)
        self._running[stream] = None
        self._own(stream.connect(child))

    def _own(self, task: asyncio.Task[None]) -> None:
        """A task that `stop` awaits."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _over(self, stream: Stream) -> None:
        if stream.slot is None:  # it never ran
            return
        self._freed(stream)
        if stream.answered:
            self._quarantine.acquit(stream.prompt_ids)
            self._keeper.praise()
        elif stream.broken:
            self._suspects.append(stream.prompt_ids)
        self._dispatch()

    def _freed(self, stream: Stream) -> None:
        assert stream.slot is not None
        self._last_progress_ns = max(self._last_progress_ns, stream.last_byte_ns)
        self._running.pop(stream, None)
        self._slots.give_back(stream.slot, stream.ids)

    def _watch_on(self) -> None:
        pause_s = self._patience.idle_timeout_s / 4
        self._watch = asyncio.get_running_loop().call_later(pause_s, self._look)

    def _look(self) -> None:
        """Fail every request that has got no byte for too long; then ask the child for one."""
        limit_ns = self._now_ns() - int(self._patience.idle_timeout_s * 1e9)
        stalled = [stream for stream in self._running if stream.last_byte_ns <= limit_ns]
        self._probing = self._probing or bool(stalled)  # the line keeps off the probe's slot
        for stream in stalled:
            stream.broken = True
            stream.fail(f"The engine gave nothing for {self._patience.idle_timeout_s:g} s.")
        if stalled and self._keeper.child is not None:
            self._own(asyncio.create_task(self._probe(self._keeper.child)))
        self._watch_on()

    async def _probe(self, child: Child) -> None:
        """One token within the deadline, or the child is replaced."""
        try:
            end = await asyncio.wait_for(self._ask(child, PROBE), self._patience.probe_timeout_s)
        except TimeoutError:
            end = Chunk(finish="error")
        if end.finish == "error":
            child.kill()  # the line waits for the next one
        else:
            self._suspects.clear()
            self._probing = False
            self._dispatch()

    async def _prove(self, child: Child) -> None:
        """A canary: a new child answers, and its guides guide. It also loads them."""
        end = await self._ask(child, CANARY)
        if end.finish == "error":
            raise StartupError(f"The engine loaded {self._model.path} and failed: {end.error}")
        if end.stop_id not in body.GUIDES["json_schema"]:
            logger.warning("This model does not follow guides: requests with one are refused.")
            self._limits = Limits(self._model.context_tokens, self._model.slots, {}, MAX_LOGPROBS)

    async def _ask(self, child: Child, options: GenerateOptions) -> Chunk:
        """The last chunk of a small request of our own."""
        answer = Answer()
        words = body.words(PROBE_IDS, options, options.max_tokens, seed=0)
        stream = Stream(PROBE_IDS, options, words, answer, self._freed, self._now_ns)
        self._connect(stream, child)
        try:
            return await answer.end
        finally:
            stream.abort()

"""The embedded engine: llama.cpp in a child process, which may die without the server.

When it dies, suspect requests are blamed and the others resume in the next child. This module
tracks running requests; `line` has the waiting ones, `keeper` restarts the child, `blame` decides
on suspects, `prompt_cache` saves prompts, `body` and `events` are the protocol.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from trt_responses.engine import (
    CONTINUATION_PRIORITY,
    EXTRAS,
    Chunk,
    GenerateOptions,
    Handle,
    Health,
    Limits,
    Loss,
    Sink,
)
from trt_responses.engines.admission import room
from trt_responses.engines.ask import CANARY, PROBE, last_chunk
from trt_responses.engines.cores import spare_cores
from trt_responses.engines.llamacpp import body
from trt_responses.engines.llamacpp.blame import Blame
from trt_responses.engines.llamacpp.keeper import Keeper, Patience
from trt_responses.engines.llamacpp.line import Line
from trt_responses.engines.llamacpp.process import Child, Model, check_file
from trt_responses.engines.llamacpp.prompt_cache import PromptCache
from trt_responses.engines.llamacpp.request import Request
from trt_responses.engines.slots import Slots
from trt_responses.errors import EngineUnavailable, StartupError

logger = logging.getLogger(__name__)

MAX_LOGPROBS = 20
PROBE_IDS = (0,)
LAST_MOMENT_S = 0.5
"""Time for a child that broke a connection to end by itself and report why."""
STARVED = 4
"""Multiple of `idle_timeout_s` without a byte after which a request fails although others progress:
the child may read one long prompt after another."""
ABOVE_ALL = math.inf
"""The priority of a request that an earlier child started: above all others."""


class LlamaCppEngine:
    """Serves one GGUF file. `context_tokens`: limit of prompt and answer of a request together."""

    def __init__(
        self,
        model_path: Path,
        *,
        context_tokens: int = 8192,
        slots: int = 4,
        threads: int | None = None,
        patience: Patience | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        seeds: random.Random | None = None,
        spelled: Callable[[str], str] = str,
        marks: body.Marks = body.HARMONY,
        adapters: Mapping[str, Path] | None = None,
        prompt_cache_mib: int = 0,
    ) -> None:
        """`spelled` converts a guide to the model file's spelling; `adapters`: files of adapters by
        name; `prompt_cache_mib`: memory for prompts beyond the slots."""
        self._marks = marks
        self._banned = marks.banned_in_guides
        names, files = tuple(adapters or {}), tuple((adapters or {}).values())
        self._prompts = PromptCache(prompt_cache_mib * 2**20)
        self._model = Model(
            model_path,
            context_tokens,
            slots,
            threads or spare_cores(),
            files,
            self._prompts.files,
        )
        self._limits = Limits(
            context_tokens, slots, marks.guides, MAX_LOGPROBS, adapters=names, extras=EXTRAS
        )
        self._patience = patience or Patience()
        self._keeper = Keeper(
            self._model,
            self._patience,
            prove=self._prove,
            excused=self._excused,
            on_up=self._up,
            on_down=self._fell,
            sleep=sleep,
        )
        self._seeds = seeds or random.Random()
        self._spelled = spelled
        self._blame = Blame()
        self._slots = Slots(slots)
        self._line = Line()
        self._running: dict[Request, None] = {}
        self._adrift: dict[Request, str] = {}
        """Requests with a broken connection and the reason, until a probe shows whether the child
        is alive."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._seeing: asyncio.Task[None] | None = None
        self._frozen: Child | None = None
        """The child that was killed because it was frozen."""
        self._turn: asyncio.TimerHandle | None = None
        """The timer of an adapter's turn, while requests wait for another adapter."""
        self._probing = False
        self._proven = False
        """Whether a child has shown what works with this model."""
        self._restarting = False
        self._restarts = 0
        self._down: str | None = "The engine has not been started."
        self._changed = asyncio.Event()
        self._last_progress_ns = self._busy_since_ns = time.monotonic_ns()

    @property
    def child(self) -> Child | None:
        """The running child, or None."""
        return self._keeper.child

    @property
    def prompt_cache_bytes(self) -> int:
        """The memory that saved prompts take."""
        return self._prompts.size_bytes

    async def start(self) -> None:
        check_file(self._model.path)
        self._prompts.open()
        try:
            await self._keeper.start()
        except BaseException:
            self._prompts.close()
            raise

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Request:
        if self._down is not None and not self._will_go_on(options):
            raise EngineUnavailable(self._down, retry_after_s=1 if self._keeper.alive else None)
        left = room(len(prompt_ids), options, self._limits)
        if (refusal := self._blame.refusal(prompt_ids, options)) is not None:
            raise refusal
        seed = self._seeds.getrandbits(32) if options.seed is None else options.seed
        banned, adapters = self._banned, self._limits.adapters
        words = body.words(prompt_ids, options, left, seed, self._spelled, banned, adapters)
        request = Request(
            prompt_ids,
            options,
            words,
            sink,
            stops=self._marks.stops,
            on_over=self._over,
            on_begun=self._begun,
            on_broken=self._broken,
        )
        if left <= 0:
            asyncio.get_running_loop().call_soon(request.end, Chunk(finish="length"))
        else:
            self._line.put(request, options.priority)
            self._dispatch()
        return request

    def _will_go_on(self, options: GenerateOptions) -> bool:
        """Whether a request may wait for a new child: only one of a started run may."""
        return self._restarting and options.priority >= CONTINUATION_PRIORITY

    def health(self) -> Health:
        used = sum(len(each.prompt_ids) + len(each.ids) for each in self._running)
        use = used / (self._model.context_tokens * self._model.slots)
        ready = self._down is None
        return Health(
            self._keeper.alive, ready, self._moved_ns, self._down, use, restarts=self._restarts
        )

    @property
    def _moved_ns(self) -> int:
        """The time of the last byte for any request."""
        return max(self._last_progress_ns, *(each.last_byte_ns for each in self._running), 0)

    def limits(self) -> Limits:
        return self._limits

    async def settled(self) -> Health:
        """Wait until the engine accepts requests, or is permanently down."""
        while self._down is not None and self._keeper.alive:
            await self._changed.wait()
        return self.health()

    async def stop(self, deadline_s: float) -> None:
        self._end_all("The engine has been stopped.")
        await self._keeper.stop(deadline_s)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._prompts.close()

    def _up(self) -> None:
        self._down = None
        self._restarting = False
        self._probing = False
        self._changed.set()
        self._last_progress_ns = time.monotonic_ns()
        self._watch_on()
        self._dispatch()

    def _excused(self) -> bool:
        """Judge the death of a child. Returns whether requests are to blame and not the engine."""
        frozen = self._frozen is not None and self._frozen is self.child
        return self._blame.judge(() if frozen else (*self._adrift, *self._running))

    def _fell(self, reason: str) -> None:
        """Queue the requests of a dead child for the next one, except the blamed ones."""
        if self._watch is not None:
            self._watch.cancel()
        self._down = reason
        self._restarting = True
        self._restarts += 1
        self._changed.clear()
        for request in (*self._adrift, *self._running):
            request.break_off()
            request.slot = None
            if (why := self._blame.why_not(request)) is None:
                self._line.put(request, ABOVE_ALL)
            elif request.can_go_on:  # it is to blame
                request.fail(why or self._adrift.get(request, reason), refused=True)
            else:
                request.fail(why or self._adrift.get(request, reason), lost="died")
        self._adrift.clear()
        self._running.clear()
        self._slots = Slots(self._model.slots)
        self._prompts.clear()
        if not self._keeper.alive:
            self._end_all(reason, lost="died")

    def _end_all(self, reason: str, lost: Loss | None = None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._down = reason
        self._restarting = False
        self._changed.set()
        for request in (*self._adrift, *self._running, *self._line):
            request.fail(reason, lost=lost)
        self._line.clear()

    def _dispatch(self) -> None:
        """Give free slots to waiting requests, in queue order."""
        while self._slots and self._down is None and not self._probing:
            request = self._line.first(idle=not self._running)
            if request is None:
                break
            if not request.over and not self._blame.allows(request, self._running):
                break
            self._line.take()
            if request.is_full:
                request.end(Chunk(finish="length"))
            elif not request.over:
                self._connect(request)
        if self._turn is None and self._running and self._line.is_contended:
            turn_s = self._patience.turn_s
            self._turn = asyncio.get_running_loop().call_later(turn_s, self._end_turn)

    def _end_turn(self) -> None:
        """Interrupt running requests until their next turn, so that another adapter gets one."""
        self._turn = None
        if self._running and self._line.is_contended:
            for request in self._line.end_turn(self._running):
                request.break_off()
                self._free(request)
                self._line.put(request, CONTINUATION_PRIORITY)
            self._dispatch()

    def _connect(self, request: Request) -> None:
        child = self.child
        assert child is not None
        slot = self._slots.take(request.read_ids, request.options.salt)
        if not self._running:
            self._busy_since_ns = time.monotonic_ns()
        change = self._prompts.claim(child, slot, request, beside=bool(self._running))
        self._running[request] = None
        ready = None if change is None else asyncio.create_task(change)
        self._own(request.connect(child, slot, ready))

    def _own(self, task: asyncio.Task[None]) -> None:
        """Keep a task for `stop` to await."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begun(self, request: Request) -> None:
        self._blame.begun(request)
        self._dispatch()

    def _broken(self, request: Request, reason: str) -> None:
        """Set a request with a broken connection aside: the child has died, or must answer a
        probe."""
        self._free(request)
        self._adrift[request] = reason
        self._probe_soon()

    def _over(self, request: Request) -> None:
        self._adrift.pop(request, None)
        if request.slot is None:  # no child has it
            return
        self._free(request)
        if request.answered:
            self._blame.answered(request)
            self._keeper.praise()
        self._dispatch()

    def _free(self, request: Request) -> None:
        assert request.slot is not None
        self._last_progress_ns = max(self._last_progress_ns, request.last_byte_ns)
        self._running.pop(request, None)
        give_back = partial(self._slots.give_back, request.slot, request.given_ids)
        request.slot = None
        if request.ready is None or request.ready.done():
            give_back()
        else:  # the slot is still being changed
            request.ready.add_done_callback(lambda _: self._changed_slot(give_back))

    def _changed_slot(self, give_back: Callable[[], None]) -> None:
        give_back()
        self._dispatch()

    def _watch_on(self) -> None:
        pause_s = self._patience.idle_timeout_s / 4
        self._watch = asyncio.get_running_loop().call_later(pause_s, self._look)

    def _look(self) -> None:
        """Check the child if it returns no byte for any request; fail a request that gets none for
        far too long while others do."""
        idle = self._seeing is None or self._seeing.done()
        if idle and self.child is not None and self._still_s() >= self._patience.idle_timeout_s:
            self._seeing = asyncio.create_task(self._check_child(self.child))
            self._own(self._seeing)
        starved_s = STARVED * self._patience.idle_timeout_s
        for request in tuple(self._running):
            if time.monotonic_ns() - request.waits_since_ns >= starved_s * 1e9:
                self._stalled(request, starved_s)
        self._watch_on()

    def _still_s(self) -> float:
        """Seconds without a byte from a child that has work."""
        if not self._running:
            return 0.0
        return (time.monotonic_ns() - max(self._moved_ns, self._busy_since_ns)) / 1e9

    async def _check_child(self, child: Child) -> None:
        """Replace a frozen child, without blame: all requests resume in the next one. Give a busy
        child as long again; then interrupt all requests and probe for a token."""
        idle_s, probe_s = self._patience.idle_timeout_s, self._patience.probe_timeout_s
        frozen = await child.is_frozen(probe_s)
        if child is not self.child or child is self._frozen:
            return  # it ended meanwhile, or is killed and about to
        if frozen:
            logger.warning(
                "replacing the engine's process %d: frozen (no byte for %g s, no answer to a probe "
                "and no CPU time within %g s)",
                *(child.pid, idle_s, probe_s),
            )
            self._frozen = child
            child.kill()
        elif self._still_s() >= 2 * idle_s:
            for request in tuple(self._running):
                self._stalled(request, 2 * idle_s)

    def _stalled(self, request: Request, seconds: float) -> None:
        request.stalled = True
        request.break_off()
        self._broken(request, f"The engine returned nothing for {seconds:g} s.")

    def _probe_soon(self) -> None:
        """Start a probe of the child, unless one is running."""
        if not self._probing and self.child is not None:
            self._probing = True
            self._own(asyncio.create_task(self._probe(self.child)))

    async def _probe(self, child: Child) -> None:
        """Request one token, and replace the child if it comes too late."""
        probe = replace(PROBE, adapter=self._line.adapter)  # another adapter's would have to wait
        before_ns = self._moved_ns
        end = await self._ask(child, probe, self._patience.probe_timeout_s)
        if child is not self.child:
            return  # its death was judged meanwhile
        if (
            end.finish == "error" and self._moved_ns == before_ns
        ):  # the queue waits for the next child
            if not await child.ends_within(LAST_MOMENT_S):
                child.kill()
            return
        for request, reason in tuple(self._adrift.items()):
            request.fail(reason)
        self._probing = False
        self._dispatch()

    async def _prove(self, child: Child) -> None:
        """Check that a new child answers. The first one must show that guides work, which also
        loads them; a later one loads them for its first guide, and answers sooner after a death."""
        end = await self._ask(child, PROBE if self._proven else CANARY, None)
        if end.finish == "error":
            raise StartupError(f"The engine loaded {self._model.path} and failed: {end.error}")
        if not self._proven and end.stop_id not in self._marks.guide_ends:
            logger.warning("guides do not work with this model: refusing requests with one")
            self._limits = replace(self._limits, guides={})
        self._proven = True
        await self._prompts.measure(child)

    async def _ask(self, child: Child, options: GenerateOptions, deadline_s: float | None) -> Chunk:
        """The last chunk of one of the server's own small requests."""

        def begin(sink: Sink) -> Handle:
            slots = self._slots
            slot = slots.take(PROBE_IDS, None)
            request = Request(
                PROBE_IDS,
                options,
                body.words(
                    PROBE_IDS,
                    options,
                    options.max_tokens,
                    0,
                    banned_in_guides=self._banned,
                    adapters=self._limits.adapters,
                ),
                sink,
                stops=self._marks.stops,
                on_over=lambda request: slots.give_back(slot, request.given_ids),
                on_begun=lambda request: None,
                on_broken=lambda request, reason: request.fail(reason),
            )
            self._own(request.connect(child, slot))
            return request

        return await last_chunk(begin, deadline_s)

"""The computing thread: loads the executor, steps the batch, and closes the executor.

It owns the executor and the batch. It posts a step's results to the event loop in one call for all
requests, and is at most one step ahead of the loop. No sinks here.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from trt_responses.engine import Limits
from trt_responses.engines.tensorrt.batch import Batch, Emitted
from trt_responses.engines.tensorrt.executor import EXACT_TOKENS, Executor, ExecutorFault
from trt_responses.engines.tensorrt.request import Request
from trt_responses.errors import StartupError

FAULT = "The engine's thread failed."
ENDED = "The engine has been stopped."


class Callbacks(NamedTuple):
    """The thread's calls on the loop: the executor is loaded, made a step, or is lost."""

    loaded: Callable[[int], None]
    """Called with the size of the vocabulary."""
    emit: Callable[[Emitted], None]
    lost: Callable[[str], None]
    """Called last, with the reason."""


class ComputingThread:
    """The thread and its inbox of requests."""

    def __init__(
        self,
        make: Callable[[], Executor],
        limits: Limits,
        callbacks: Callbacks,
        loop: asyncio.AbstractEventLoop,
        now_ns: Callable[[], int],
    ) -> None:
        self._make = make
        self._limits = limits
        self._callbacks = callbacks
        self._loop = loop
        self._now_ns = now_ns
        self._inbox: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._handed_over = threading.Event()
        """Set when the loop has started to process the last step."""
        self._handed_over.set()
        self._stopping = False
        self.last_progress_ns = now_ns()
        self.step_began_ns: int | None = None
        """The start time of the current step; None between steps. The engine reads it to detect
        stalls."""
        threading.Thread(target=self._live, name="tensorrt", daemon=True).start()

    def put(self, request: Request) -> None:
        self._inbox.put(request)

    def stop(self) -> None:
        """End after the current step."""
        self._stopping = True
        self._inbox.put(None)
        self._handed_over.set()

    def _live(self) -> None:
        """The body of the thread. It always reports its end to the loop."""
        reason = FAULT
        try:
            executor = self._loaded()
            try:
                self._post(self._callbacks.loaded, executor.vocabulary)
                self._compute(Batch(executor))
            finally:
                executor.close()
            reason = ENDED
        except (StartupError, ExecutorFault) as fault:
            reason = str(fault)
        finally:
            self._post(self._callbacks.lost, reason)

    def _loaded(self) -> Executor:
        executor = self._make()
        try:
            self._check(executor)
            _prove(executor)
        except ExecutorFault as fault:
            executor.close()
            raise StartupError(f"The engine loaded and then failed: {fault}") from None
        return executor

    def _check(self, executor: Executor) -> None:
        for what, actual, expected in (
            ("slots", executor.slots, self._limits.max_batch),
            ("tokens in a slot", executor.length, self._limits.context_tokens),
        ):
            if actual != expected:
                raise ExecutorFault(f"it has {actual} {what}, but its card says {expected}.")
        if executor.slots > EXACT_TOKENS:
            raise ExecutorFault(f"{executor.slots} slots may overflow; {EXACT_TOKENS} never do.")

    def _compute(self, batch: Batch) -> None:
        while not self._stopping:
            if not batch.busy and not self._take(batch, wait=True):
                return
            while self._take(batch, wait=False):
                pass
            self.step_began_ns = self._now_ns()
            emitted = batch.step()
            self.step_began_ns, self.last_progress_ns = None, self._now_ns()
            if emitted:
                self._emit(emitted)

    def _take(self, batch: Batch, *, wait: bool) -> bool:
        """Take one request from the inbox. Returns whether there was one."""
        try:
            request = self._inbox.get(wait)
        except queue.Empty:
            return False
        if request is not None:
            batch.add(request)
        return request is not None

    def _emit(self, emitted: Emitted) -> None:
        self._handed_over.wait()
        self._handed_over.clear()
        self._post(self._hand_over, emitted)

    def _hand_over(self, emitted: Emitted) -> None:
        """Pass a step's chunks to their requests, on the loop."""
        self._handed_over.set()
        self._callbacks.emit(emitted)

    def _post(self, call: Callable[..., None], given: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, given)


def _prove(executor: Executor) -> None:
    """Make both kinds of call once, to check the numbers and to trigger late compilation."""
    nothing = np.zeros(executor.slots, np.int64)
    for rows in (executor.prefill(0, nothing[:1], 0), executor.decode(nothing, nothing)):
        if not np.isfinite(rows.lse).all():
            raise ExecutorFault("its first numbers are not finite.")

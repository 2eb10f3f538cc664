"""One request to TensorRT-LLM: converts its growing output to chunks. Also its handle.

One result and one sink: no other requests, no engine lifetime.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum

from trt_responses.engine import Chunk, Finish, GenerateOptions, Logprob, Loss, Sink
from trt_responses.engines.trtllm.api import CompletionOutput, RequestOutput
from trt_responses.engines.trtllm.api import Logprob as TheirLogprob
from trt_responses.engines.trtllm.arguments import HARMONY
from trt_responses.errors import root_cause

logger = logging.getLogger(__name__)

UNLIKELY = -9999.0
"""The log probability of an id for which the package gave none, since it is too unlikely."""
FINISHES: Mapping[str, Finish] = {"stop": "stop", "length": "length"}
"""The API's finish for the package's finish reasons; any other reason is a failure."""
GOING_ON = (None, "not_finished")


class Request:
    """`on_over` is called once, before the last push, however the request ended."""

    def __init__(
        self,
        options: GenerateOptions,
        sink: Sink,
        now_ns: Callable[[], int],
        on_over: Callable[[Request], None],
        on_error: Callable[[Exception], None],
        end_id: int = HARMONY.end_id,
    ) -> None:
        self.options = options
        self.over = False
        self.answered = False
        self.begun_ns = now_ns()
        self.last_step_ns = 0
        """The time of the last step, or 0."""
        self._sink = sink
        self._now_ns = now_ns
        self._on_over = on_over
        self._on_error = on_error
        self._stops = frozenset((end_id, *options.stop_ids))
        self._seen = 0
        self._cached_sent = False
        self._result: RequestOutput | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, result: RequestOutput) -> asyncio.Task[None]:
        """Push the chunks of this result from now on."""
        self._result = result
        self._task = asyncio.get_running_loop().create_task(self._follow(result))
        return self._task

    def abort(self) -> None:
        if not self.over:
            self._leave()

    def fail(self, reason: str, lost: Loss | None = None) -> None:
        self.end(Chunk(finish="error", error=reason, lost=lost))

    def end(self, chunk: Chunk) -> None:
        """Push the last chunk, unless the request is over already."""
        if not self.over:
            self.answered = chunk.finish != "error"
            self._leave(done=self._result is None or self._result.finished)
            self._sink.push(chunk)

    def _metrics(self) -> Mapping[str, float] | None:
        """The package's numeric metrics of this request."""
        if not self.options.metrics or self._result is None:
            return None
        measured = self._result.metrics_dict or {}
        return {_name(key): float(v) for key, v in measured.items() if isinstance(v, int | float)}

    async def _follow(self, result: RequestOutput) -> None:
        """Read the result to its end. After an error it never finishes, so it is not awaited
        again."""
        steps = aiter(result)
        while not self.over:
            try:
                step = await anext(steps)
            except StopAsyncIteration:
                break
            except Exception as error:  # any class: KeyErrors, socket errors, failed checks
                self._on_error(error)
                self.fail(root_cause(error))
                return
            if not self.over:  # it may have been aborted since the step
                self._step(step)
        self.fail("The engine ended the request without saying why.")

    def _step(self, result: RequestOutput) -> None:
        self.last_step_ns = self._now_ns()
        output = result.outputs[0]
        ids = list(output.token_ids[self._seen :])
        stop_id = next((token_id for token_id in ids if token_id in self._stops), None)
        if stop_id is not None:
            del ids[ids.index(stop_id) + 1 :]
        elif _trimmed(output, self._stops):
            stop_id = int(output.stop_reason or 0)
            ids.append(stop_id)  # the package cut it from the output
        logprobs = self._logprobs(output, ids)
        self._seen += len(ids)
        if stop_id is not None:
            self.end(
                Chunk(ids, logprobs, self._cached(result), "stop", stop_id, metrics=self._metrics())
            )
        elif output.finish_reason not in GOING_ON or result.finished:
            self._finish(result, output, ids, logprobs)
        elif ids:
            self._sink.push(Chunk(ids, logprobs, self._cached(result)))

    def _finish(
        self,
        result: RequestOutput,
        output: CompletionOutput,
        ids: Sequence[int],
        logprobs: Sequence[Logprob],
    ) -> None:
        """End the request with the package's finish reason, since no id ended it."""
        finish = FINISHES.get(output.finish_reason or "", "error")
        error = None
        if finish == "error":
            error = f"The engine ended the request: {output.finish_reason or 'it did not say why'}."
        cached, metrics = self._cached(result), self._metrics()
        self.end(Chunk(ids, logprobs, cached, finish, None, error, metrics=metrics))

    def _cached(self, result: RequestOutput) -> int | None:
        if self._cached_sent:
            return None
        self._cached_sent = True
        return result.cached_tokens

    def _logprobs(self, output: CompletionOutput, ids: Sequence[int]) -> list[Logprob]:
        if self.options.logprobs is None:
            return []
        entries = (output.logprobs or ())[self._seen : self._seen + len(ids)]
        return [
            logprob(token_id, entry, self.options.logprobs)
            for token_id, entry in itertools.zip_longest(ids, entries)
        ]

    def _leave(self, *, done: bool = False) -> None:
        """Stop pushing and waiting, and abort the result."""
        self.over = True
        if self._result is not None and not done:
            # Without an executor it fails an assertion or an attribute look-up.
            with suppress(RuntimeError, AssertionError, AttributeError):
                self._result.abort()
        if self._task is not None:
            asyncio.get_running_loop().call_soon(self._task.cancel)
        self._on_over(self)


def _name(key: object) -> str:
    """The name of a key, which is an enum member or a string."""
    return str(key.value if isinstance(key, Enum) else key)


def _trimmed(output: CompletionOutput, stops: frozenset[int]) -> bool:
    """Whether a stop id ended the request and was cut from the output."""
    return output.finish_reason == "stop" and output.stop_reason in stops


def logprob(token_id: int, entry: Mapping[int, TheirLogprob] | float | None, count: int) -> Logprob:
    """A log probability from the package's entry, which maps alternatives by id; newer versions may
    have a number."""
    if entry is None:
        return Logprob(token_id, UNLIKELY, ())
    if isinstance(entry, int | float):
        return Logprob(token_id, float(entry), ((token_id, float(entry)),)[:count])
    ranked = sorted(entry.items(), key=lambda pair: -pair[1].logprob)
    chosen = entry[token_id].logprob if token_id in entry else UNLIKELY
    return Logprob(token_id, chosen, tuple((i, e.logprob) for i, e in ranked[:count]))

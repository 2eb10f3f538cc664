"""The TensorRT-LLM engine: its PyTorch backend in this process, ids in, ids out.

The only file that imports `tensorrt_llm`, when the engine starts. It tracks running requests; the
arguments are in `arguments.py`, one request in `request.py`, health checks in `liveness.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from trt_responses.engine import Chunk, Gathered, GenerateOptions, Health, Limits, Loss, Sink
from trt_responses.engines.admission import room
from trt_responses.engines.ask import CANARY, PROBE, Ask, ignored_options, last_chunk
from trt_responses.engines.trtllm.api import FATAL, LLM, REFUSED, Package, names_of
from trt_responses.engines.trtllm.arguments import (
    HARMONY,
    LLGUIDANCE,
    OTHER_BACKEND,
    SILENCE,
    SupportedArguments,
    attention_ranks,
    call_arguments,
    engine_limits,
    llm_arguments,
    lora_requests,
    marks_of,
    sampling_arguments,
    scheduling_arguments,
)
from trt_responses.engines.trtllm.liveness import Liveness, Patience
from trt_responses.engines.trtllm.ranks import Ranks
from trt_responses.engines.trtllm.request import Request
from trt_responses.engines.trtllm.retention import retention
from trt_responses.engines.trtllm.shutdown import shut_down
from trt_responses.engines.trtllm.statistics import Statistics
from trt_responses.errors import (
    ApiError,
    EngineUnavailable,
    InvalidRequest,
    StartupError,
    root_cause,
)

logger = logging.getLogger(__name__)


class Running(NamedTuple):
    """The parts of a started engine."""

    package: Package
    supported: SupportedArguments
    llm: LLM
    adapters: Mapping[str, object]


def installed() -> Package:
    """The installed package. Raises a `StartupError` if it cannot be imported."""
    try:
        import tensorrt_llm
        from tensorrt_llm.llmapi import GuidedDecodingParams
        from tensorrt_llm.llmapi.llm_args import TorchLlmArgs
        from tensorrt_llm.scheduling_params import SchedulingParams
    except Exception as error:  # any class: its imports may fail in any way
        raise StartupError(
            f"tensorrt_llm cannot be imported ({root_cause(error)}): run in the container "
            "nvcr.io/nvidia/tensorrt-llm/release:1.2.1, or set TRT_RESPONSES_TRTLLM_PYTHON to the "
            "Python that has it."
        ) from None
    return Package(
        tensorrt_llm.__version__,
        tensorrt_llm.LLM,
        tensorrt_llm.SamplingParams,
        GuidedDecodingParams,
        SchedulingParams,
        TorchLlmArgs.model_fields,
        _class("tensorrt_llm.executor.request", "LoRARequest"),
        _class("tensorrt_llm.llmapi", "KvCacheRetentionConfig"),
    )


def _class(module: str, name: str) -> Any:
    """A class of the package, or None if the version lacks it."""
    with suppress(ImportError):
        return getattr(import_module(module), name, None)
    return None


class TrtLlmEngine:
    """The engine of one checkpoint, with its prepared arguments."""

    def __init__(
        self,
        checkpoint: Path,
        arguments: Mapping[str, object],
        *,
        variables: Mapping[str, str] | None = None,
        end_id: int | None = None,
        adapters: Mapping[str, Path] | None = None,
        package: Callable[[], Package] = installed,
        patience: Patience | None = None,
        find_ignored: Callable[[Ask, Sequence[int]], Awaitable[frozenset[str]]] = ignored_options,
        environment: MutableMapping[str, str] = os.environ,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`end_id`: the tokenizer's end token, for a model other than gpt-oss."""
        self._checkpoint = checkpoint
        self._arguments = arguments
        self._variables = {**SILENCE, **(variables or {})}
        self._import = package
        self._patience = patience or Patience()
        self._find_ignored = find_ignored
        self._environment = environment
        self._now_ns = now_ns
        self._marks = marks_of(end_id)
        self._adapters = adapters or {}
        self._limits = engine_limits(self._arguments, self._marks.end_id, self._adapters)
        self._on: Running | None = None
        ranks = attention_ranks(arguments)
        self._ranks = Ranks(ranks) if ranks > 1 else None
        self._takes_bans = True
        self._statistics = Statistics(sleep)
        self._requests: dict[Request, int] = {}
        """The running requests, each with its rank."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._liveness = Liveness(
            self._patience,
            ask=self._probe,
            is_waited_for=lambda: bool(self._requests),
            fail_idle=self._fail_idle,
            on_death=partial(self._fail_all, lost="died"),
            sleep=sleep,
            now_ns=now_ns,
        )

    async def start(self) -> None:
        """Load the engine on this thread, since the package sets up signals and MPI; nothing is
        served yet."""
        self._environment.update(self._variables)
        package = self._import()
        await self._load(package)
        if self._arguments.get("guided_decoding_backend") == LLGUIDANCE and not (
            self._limits.guides
        ):
            logger.warning("guides by llguidance do not work: trying xgrammar")
            await self._unload()
            self._arguments = {**self._arguments, "guided_decoding_backend": OTHER_BACKEND}
            self._limits = engine_limits(self._arguments, self._marks.end_id, self._adapters)
            await self._load(package)
        self._liveness.start()
        assert self._on is not None
        self._statistics.start(self._on.llm)

    async def _load(self, package: Package) -> None:
        supported = SupportedArguments(package)
        kept = llm_arguments(self._checkpoint, self._arguments, supported)
        try:
            adapters = lora_requests(self._adapters, package)
            llm = package.llm(**kept)
        except Exception as error:  # any class of the package's errors ends the start
            raise StartupError(f"TensorRT-LLM cannot start: {root_cause(error)}") from None
        supported.learn_call(llm.generate_async)
        self._on = Running(package, supported, llm, adapters)
        try:
            await self._prove()
        except StartupError:
            await self._unload()
            raise

    async def _unload(self) -> None:
        assert self._on is not None
        await shut_down(self._on.llm, self._patience.probe_timeout_s)

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Request:
        liveness = self._liveness
        if liveness.down is not None:
            raise EngineUnavailable(liveness.down, retry_after_s=1 if liveness.alive else None)
        left = room(len(prompt_ids), options, self._limits)
        return self._begin(prompt_ids, options, left, sink)

    def health(self) -> Health:
        for request in self._requests:
            self._liveness.progress(request.last_step_ns)
        statistics = self._statistics
        return replace(
            self._liveness.health(), cache_use=statistics.cache_use, queued=statistics.queued
        )

    def limits(self) -> Limits:
        return self._limits

    async def stop(self, deadline_s: float) -> None:
        reason = "The engine has been stopped."
        await self._liveness.stop(reason)
        await self._statistics.stop()
        self._fail_all(reason)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._on is not None:
            llm, self._on = self._on.llm, None
            await shut_down(llm, deadline_s)

    def _begin(
        self, prompt_ids: Sequence[int], options: GenerateOptions, left: int, sink: Sink
    ) -> Request:
        assert self._on is not None
        end_id = self._marks.end_id
        request = Request(options, sink, self._now_ns, self._over, self._judge, end_id)
        if left <= 0:
            asyncio.get_running_loop().call_soon(request.end, Chunk(finish="length"))
            return request
        package, supported, llm, adapters = self._on
        rank, scheduling = 0, None
        try:
            sampling = sampling_arguments(
                options, left, package, bans=self._takes_bans, marks=self._marks
            )
            params = package.sampling_params(**supported.sampling(sampling))
            if self._ranks is not None:
                rank = self._ranks.choose(prompt_ids)
                scheduling = package.scheduling_params(**scheduling_arguments(rank))
            adapter = None if options.adapter is None else adapters[options.adapter]
            ids = list(prompt_ids)
            keep = retention(ids, package) if end_id == HARMONY.end_id else None
            call = supported.call(call_arguments(options, params, scheduling, adapter, keep))
            result = llm.generate_async(ids, **call)
        except Exception as error:  # any class: any call may raise a dead worker's error
            raise self._refusal(error) from None
        self._requests[request] = rank
        if self._ranks is not None:
            self._ranks.running[rank] += 1
        task = request.follow(result)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return request

    def _refusal(self, error: Exception) -> ApiError:
        if not isinstance(error, ValueError) and REFUSED not in names_of(error):
            self._judge(error)
            return EngineUnavailable(f"The engine accepts no requests: {root_cause(error)}")
        too_long = isinstance(error, RuntimeError)  # the only check in the call
        return InvalidRequest(
            f"The engine refused the request: {error}",
            code="context_length_exceeded" if too_long else None,
            param="input" if too_long else None,
        )

    def _judge(self, error: Exception) -> None:
        """Judge an error: a refused request is its own fault; any other error may mean a dead
        engine."""
        names = names_of(error)
        if names & FATAL:
            self._liveness.die(f"The engine died: {error}")
        elif REFUSED not in names and self._liveness.down is None:
            self._liveness.probe()

    def _over(self, request: Request) -> None:
        if request not in self._requests:  # it never started
            return
        rank = self._requests.pop(request)
        if self._ranks is not None:
            self._ranks.running[rank] -= 1
        self._liveness.progress(request.last_step_ns)
        if request.answered:
            self._liveness.answered()

    def _fail_idle(self) -> None:
        """Fail requests that waited too long. A started request must progress; a queued one may
        wait longer while the engine makes steps."""
        now, patience = self._now_ns(), self._patience
        engine_ns = self.health().last_progress_ns
        idle_ns, queue_ns = int(patience.idle_timeout_s * 1e9), int(patience.queue_timeout_s * 1e9)
        stalled = [
            r
            for r in self._requests
            if now - (r.last_step_ns or max(r.begun_ns, engine_ns)) >= idle_ns
            or (not r.last_step_ns and now - r.begun_ns >= queue_ns)
        ]
        for request in stalled:
            waited_s = (now - max(request.last_step_ns, request.begun_ns)) / 1e9
            request.fail(f"The engine returned nothing for this request for {waited_s:.0f} s.")

    def _fail_all(self, reason: str, lost: Loss | None = None) -> None:
        for request in tuple(self._requests):
            request.fail(reason, lost)

    async def _probe(self, deadline_s: float | None = None) -> str | None:
        try:
            end = await self._ended(self._marks.probe, PROBE, deadline_s)
        finally:
            self.health()  # counts steps of other requests as progress
        return (end.error or "no answer") if end.finish == "error" else None

    async def _prove(self) -> None:
        """Check that a new engine answers, whether its guides work, and which options it
        ignores."""
        limits, deadline_s = self._limits, self._patience.first_answer_s
        self._takes_bans = self._accepts_bans()
        if limits.guides:
            end = await self._ended(self._marks.probe, CANARY, deadline_s)
            if end.stop_id not in limits.guides["json_schema"]:
                logger.warning(
                    "guides do not work on this engine (%s): refusing requests with one",
                    end.error or f"it ended with {end.finish}",
                )
                self._limits = replace(limits, guides={})
        if not self._limits.guides and (why := await self._probe(deadline_s)):
            raise StartupError(f"TensorRT-LLM loaded the model and then failed: {why}")
        ignored = await self._find_ignored(self._answer, self._marks.probe)
        if not self._takes_bans:
            ignored |= {"banned_ids"}
        if ignored:
            logger.warning("this engine ignores %s", ", ".join(sorted(ignored)))
            self._limits = replace(self._limits, ignores=ignored)

    def _accepts_bans(self) -> bool:
        """Whether the engine accepts banned ids: with a draft model, newer versions refuse them."""
        if not self._arguments.get("speculative_config"):
            return True
        self._takes_bans = True
        try:
            banning = replace(PROBE, banned_ids=(0,))
            self._begin(self._marks.probe, banning, 1, Gathered()).abort()
        except InvalidRequest:
            return False
        return True

    async def _answer(self, prompt_ids: Sequence[int], options: GenerateOptions) -> Sequence[int]:
        end = await self._ended(prompt_ids, options, self._patience.first_answer_s)
        return () if end.error else end.token_ids  # an option that is refused is not ignored

    async def _ended(
        self, prompt_ids: Sequence[int], options: GenerateOptions, deadline_s: float | None
    ) -> Chunk:
        """The last chunk of one of the server's own small requests."""
        return await last_chunk(
            lambda sink: self._begin(prompt_ids, options, options.max_tokens, sink), deadline_s
        )

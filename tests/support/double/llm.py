"""The stand-in itself: `LLM` runs ids from scripts, and behaves as the contract says.

One clock makes the steps, or a worker's thread. What a careless caller would do wrong is noted in
`misuse`, where the real package would answer with a hang or with wrong ids.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING

from tests.support.double import contract as names
from tests.support.double.results import Fail, Hang, RequestOutput, Response, Script, Step
from tests.support.double.words import (
    GuidedDecodingParams,
    LoRARequest,
    SamplingParams,
    SchedulingParams,
    words_class,
)
from tests.support.scripted.clock import StepClock
from trt_responses.engines.trtllm.api import Package

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from tests.support.double.contract import Version
    from tests.support.double.worker import Worker
    from trt_responses.engines.ask import Ask

BLOCKS = 8
MOST_BANS = 32
"""Newer versions walk each banned id at every step, on the host."""
FULL = "The number of prompt tokens and tokens to generate exceeds max_seq_len."


class RequestError(RuntimeError):
    """As in `tensorrt_llm.executor.utils`."""


class CppExecutorError(RuntimeError):
    """As in `tensorrt_llm.executor.executor`."""


@dataclass
class Double:
    """How the stand-in behaves, and what was done to it."""

    script: Callable[[Sequence[int], SamplingParams], Script]
    version: Version = "1.2.1"
    gpus: int = 1
    start_error: Exception | None = None
    """What its constructor raises."""
    clock: StepClock = field(default_factory=StepClock.free)
    real_max_seq_len: int | None = None
    """The length that fits, if it is less than the requested one: reported late."""
    flat_logprobs: bool = False
    coalesces: bool = False
    """Tokens between two reads come as one step."""
    dead: bool = False
    """The worker is gone: no reply and no error comes."""
    raises: Exception | None = None
    """What every call raises: the error of a worker that died, whose class may be any."""
    broken: Mapping[str, Exception] = field(default_factory=dict)
    """What single calls raise, by their name: `shutdown`, `abort` or `get_stats_async`."""
    worker: Callable[[], Worker] | None = None
    """Makes the process that each step goes through; without one the clock makes them."""
    crashed: bool = False
    misuse: list[str] = field(default_factory=list)
    llms: list[LLM] = field(default_factory=list)
    requests: list[RequestOutput] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    """Lets a shutdown that waits for a dead worker return."""

    def package(self) -> Package:
        sampling = words_class(SamplingParams, names.sampling_fields(self.version))
        guides = words_class(GuidedDecodingParams, names.guide_fields())
        fields = {n: names.Field(e) for n, e in names.checked_arguments(self.version).items()}
        scheduling = words_class(SchedulingParams, names.scheduling_fields())
        adapters = words_class(LoRARequest, names.adapter_fields())
        return Package(self.version, LLMClass(self), sampling, guides, scheduling, fields, adapters)

    def modules(self) -> dict[str, ModuleType]:
        """The same as modules, each name where the contract has it."""
        package, where = self.package(), names.texts("modules")
        values: dict[str, object] = {
            "LLM": package.llm,
            "SamplingParams": package.sampling_params,
            "GuidedDecodingParams": package.guided_decoding_params,
            "SchedulingParams": package.scheduling_params,
            "TorchLlmArgs": type("", (), {"model_fields": package.argument_fields}),
            "LoRARequest": package.lora_request,
        }
        found = {where[name]: ModuleType(where[name]) for name in values}
        for name, value in values.items():
            setattr(found[where[name]], name, value)
        found["tensorrt_llm"].__version__ = self.version  # type: ignore[attr-defined]  # as theirs
        return found

    def check(self, call: str) -> None:
        """Raise what this call raises now."""
        if call in self.broken:
            raise self.broken[call]

    def crash(self, message: str = "CUDA error") -> None:
        self.crashed = True
        for request in self.requests:
            if not request.finished:
                request.send(Response(error=CppExecutorError(message)))


class LLMClass:
    """Stands for the class: calling it makes an `LLM`, and its signature is the contract's."""

    def __init__(self, plan: Double) -> None:
        self._plan = plan
        self.__signature__ = names.llm_signature()

    def __call__(self, **given: object) -> LLM:
        names.check_all(given, names.checked_arguments(self._plan.version))
        if "model" not in given:
            raise TypeError("LLM() missing 1 required argument: 'model'")
        llm = LLM(self._plan, given)
        self._plan.llms.append(llm)
        return llm


class LLM:
    def __init__(self, plan: Double, arguments: dict[str, object]) -> None:
        self.plan = plan
        self.arguments = arguments
        self.is_shut_down = False
        self.generate_async = GenerateAsync(self)
        self._ids = itertools.count(1)
        self.requests: list[RequestOutput] = []
        world = self._number("tensor_parallel_size", 1) * self._number("pipeline_parallel_size", 1)
        if plan.start_error is not None:
            raise plan.start_error
        if world > plan.gpus:
            raise RuntimeError(f"World size {world} is larger than the {plan.gpus} visible GPUs.")
        self.worker = None if plan.worker is None else plan.worker()
        if self.worker is not None:
            self.worker.loaded()
        (self.worker or plan.clock).drive(self._advance)

    @property
    def tokenizer(self) -> object | None:
        return None if self.arguments.get("skip_tokenizer_init") else "tokenizer"

    def get_stats_async(self, timeout: float = 2) -> AsyncIterator[dict[str, object]]:
        self.plan.check("get_stats_async")
        return self._stats()

    async def _stats(self) -> AsyncIterator[dict[str, object]]:
        """Nothing before the first request, or if the start did not enable it."""
        if self.arguments.get("enable_iter_perf_stats") and self.plan.requests:
            used = sum(request.running and not request.finished for request in self.requests)
            blocks = {"usedNumBlocks": used, "maxNumBlocks": BLOCKS}
            yield {"iter": 1, "numQueuedRequests": 3, "kvCacheStats": blocks}

    def shutdown(self) -> None:
        self.plan.check("shutdown")
        self.is_shut_down = True
        if self.worker is not None:
            self.worker.stop()
        if self.plan.dead:
            self.plan.released.wait()

    def begin(self, given: Mapping[str, object]) -> RequestOutput:
        prompt, params = given["inputs"], given["sampling_params"]
        assert isinstance(prompt, list)
        assert isinstance(params, SamplingParams)
        self._send()
        self._check(prompt, params)
        if given.get("lora_request") is not None and not self.arguments.get("lora_config"):
            raise RequestError(
                "a request names an adapter, and no lora_config was given at the start"
            )
        result = RequestOutput(self, next(self._ids), prompt, params)
        for name in (
            "trace_headers",
            "cache_salt",
            "priority",
            "scheduling_params",
            "lora_request",
            "kv_cache_retention_config",
        ):
            setattr(result, name, given.get(name))
        params.pad_id = params.end_id  # the given object is changed: one per request
        result.script = self.plan.script(prompt, params)
        self.plan.requests.append(result)
        if len(prompt) >= (self.plan.real_max_seq_len or len(prompt) + 1):
            result.send(Response(error=RequestError(FULL)))
        else:
            self.requests.append(result)
        self._wake()
        return result

    def cancel(self, result: RequestOutput) -> None:
        self._send()
        if result in self.requests and not self.plan.dead:
            self.requests.remove(result)
            result.send(Response(finish_reason="cancelled"))
            self._wake()

    def _send(self) -> None:
        if self.worker is not None:
            self.worker.send(self.shutdown)

    def _wake(self) -> None:
        (self.worker or self.plan.clock).wake()

    def _check(self, prompt: list[int], params: SamplingParams) -> None:
        if self.plan.raises is not None:
            raise self.plan.raises
        if self.is_shut_down or self.plan.crashed:
            raise RuntimeError("LLM is shutting down")
        if params.end_id is None and self.tokenizer is None:
            raise ValueError("end_id must be given when there is no tokenizer")
        backend = self.arguments.get("guided_decoding_backend")
        if params.guided_decoding is not None and (self.tokenizer is None or backend is None):
            raise ValueError("guided decoding needs a backend and a tokenizer")
        at_once = self._number("max_num_tokens", 8192)
        if len(prompt) > at_once and not self.arguments.get("enable_chunked_prefill"):
            raise RequestError(f"The prompt has {len(prompt)} tokens: max_num_tokens.")
        banned = params.bad_token_ids or []
        if banned and self.plan.version == "main" and self.arguments.get("speculative_config"):
            raise ValueError("bad words are not supported with one-model speculative decoding")
        if len(banned) > MOST_BANS or len(banned) != len(set(banned)):
            self.plan.misuse.append(f"{len(banned)} banned ids, {len(set(banned))} of them others")
        if params.pad_id is not None:
            self.plan.misuse.append("one SamplingParams object served two requests")

    def _number(self, name: str, default: int) -> int:
        value = self.arguments.get(name)
        return value if isinstance(value, int) else default

    def _advance(self) -> bool:
        """One step of the batch: those that came first, as many as fit."""
        if self.plan.dead or self.plan.crashed:
            return False
        stuck = 0
        for request in tuple(self.requests[: self._number("max_batch_size", 64)]):
            response = self._step(request)
            if response is None:
                stuck += 1
                continue
            if response.finish_reason or response.error:
                with suppress(ValueError):  # cancelled meanwhile, from the other thread
                    self.requests.remove(request)
            request.send(response)
        batch = min(len(self.requests), self._number("max_batch_size", 64))
        return batch > stuck

    def _step(self, request: RequestOutput) -> Response | None:
        request.running = True
        params, steps = request.sampling_params, request.script.steps
        step: Step = (params.end_id or 0,)
        if request.position < len(steps):
            step = steps[request.position]
        if isinstance(step, Hang):
            return None
        request.position += 1
        if isinstance(step, Fail):
            return Response(error=step.error)
        for count, token_id in enumerate(step, 1):
            request.made += 1
            if finish := self._finish(request, token_id):
                return Response(step[:count], *finish)
        full = request.script.full and request.position == len(steps)
        return Response(step, "length" if full else None)

    def _finish(self, request: RequestOutput, token_id: int) -> tuple[str, int | None] | None:
        """In this order: the end id, the length, the stop words."""
        params = request.sampling_params
        context = self._number("max_seq_len", 1 << 30)
        if token_id == params.end_id:
            return "stop", None
        if request.made >= params.max_tokens:
            return "length", None
        if len(request.prompt_token_ids) + request.made >= context:
            return "length", None
        return ("stop", token_id) if token_id in (params.stop_token_ids or ()) else None


class GenerateAsync:
    """The method, with the version's own signature: what it does not name is a `TypeError`."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.__signature__ = names.call_signature(llm.plan.version)

    def __call__(self, inputs: list[int], **given: object) -> RequestOutput:
        return self._llm.begin(self.__signature__.bind(inputs, **given).arguments)


async def nothing_ignored(_: Ask, prompt: Sequence[int]) -> frozenset[str]:
    """Asks nothing, so that a test's own requests are the first."""
    return frozenset()

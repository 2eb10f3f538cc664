"""A server over gRPC, made from the published `.proto` files, over the stand-in for TensorRT-LLM's
package. What it does with a request is written from what TensorRT-LLM's server does: which fields
it reads, with which status it refuses, what it sends and when.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc

from tests.support.engine_claims import SLOTS
from tests.support.grpc_bindings import module
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.support.double.llm import LLM
    from tests.support.double.results import RequestOutput


def trouble_of(llm: LLM) -> str | None:
    """The package's reason why its executor is not well; without an error it knows of no death."""
    worker = llm.worker
    reported = worker is not None and worker.error is not None and worker.is_dead.is_set()
    if llm.is_shut_down or llm.plan.crashed or reported:
        return "RuntimeError: Executor is unhealthy"
    return None


def end_id(ignore_eos: bool) -> int:
    return -1 if ignore_eos else CONTROL.return_


def add(servicer: object, name: str, service: str, server: grpc.aio.Server) -> None:
    """Add what a servicer has of a service; the rest is not implemented."""
    generated = module(name)
    whole = getattr(generated, f"{service}Servicer")
    both = type(service, (whole,), {})()
    for method in vars(whole):
        if hasattr(servicer, method) and not method.startswith("_"):
            setattr(both, method, getattr(servicer, method))
    getattr(generated, f"add_{service}Servicer_to_server")(both, server)


class Servicer:
    """TensorRT-LLM's own protocol. It reads neither salt nor priority. It does not learn of a
    call that is cancelled while a message is under way: the generator is closed, and the
    request goes on."""

    def __init__(self, llm: LLM, *, tells_batch: bool = True) -> None:
        self.llm = llm
        self.package = llm.plan.package()
        self.requests: list[Any] = []
        """The requests, as they came."""
        self.aborted = 0
        self._active: dict[str, RequestOutput] = {}
        self._messages = module("trtllm_service_pb2")
        self._batch = SLOTS if tells_batch else 0

    def join(self, server: grpc.aio.Server) -> None:
        add(self, "trtllm_service_pb2_grpc", "TrtllmService", server)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        result: RequestOutput | None = None
        try:
            if not request.HasField("tokenized"):
                raise ValueError("Missing tokenized input")
            result = self.llm.generate_async(
                list(request.tokenized.input_token_ids),
                sampling_params=self._sampling(request),
                streaming=request.streaming,
            )
            self._active[request.request_id] = result
            sent = 0
            async for _ in result:
                output = result.outputs[0]
                if fresh := output.token_ids[sent:]:
                    chunk = self._messages.GenerateStreamChunk(
                        token_ids=fresh,
                        prompt_tokens=len(result.prompt_token_ids),
                        completion_tokens=len(output.token_ids),
                        cached_tokens=result.cached_tokens,
                        logprobs=self._logprobs(fresh, output.logprobs[sent:]),
                    )
                    yield self._messages.GenerateResponse(
                        request_id=request.request_id, chunk=chunk
                    )
                sent = len(output.token_ids)
            yield self._complete(request.request_id, result)
        except asyncio.CancelledError:
            self.aborted += 1
            if result is not None:
                result.abort()
            raise
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Exception as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        finally:
            self._active.pop(request.request_id, None)

    async def Abort(self, request: Any, context: Any) -> Any:
        result = self._active.pop(request.request_id, None)
        if result is not None:
            self.aborted += 1
            result.abort()
        return self._messages.AbortResponse(success=result is not None)

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        return self._messages.HealthCheckResponse(status=trouble_of(self.llm) or "OK")

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        context_tokens = self.llm.arguments.get("max_seq_len", 0)
        return self._messages.GetModelInfoResponse(
            model_id="gpt-oss", max_seq_len=context_tokens, max_batch_size=self._batch
        )

    def _sampling(self, request: Any) -> Any:
        sampling, words = request.sampling_config, self.package.sampling_params
        given = {
            name: getattr(sampling, name)
            for name in ("temperature", "top_p", "top_k", "min_p", "seed")
            if sampling.HasField(name)
        }
        for name in ("presence_penalty", "frequency_penalty"):
            if sampling.HasField(name):
                given[name] = getattr(sampling, name)
        if request.output_config.HasField("logprobs"):
            given["logprobs"] = request.output_config.logprobs
        if request.HasField("guided_decoding"):
            kind = request.guided_decoding.guide_type
            name = {2: "json", 3: "regex", 4: "grammar"}[kind]
            guides = self.package.guided_decoding_params
            given["guided_decoding"] = guides(**{name: request.guided_decoding.guide})
        return words(
            end_id=end_id(request.ignore_eos),
            max_tokens=request.max_tokens,
            detokenize=False,
            stop_token_ids=list(request.stop_token_ids) or None,
            bad_token_ids=list(request.bad_token_ids) or None,
            include_stop_str_in_output=request.include_stop_token_in_output,
            **given,
        )

    def _complete(self, request_id: str, result: RequestOutput) -> Any:
        output = result.outputs[0]
        complete = self._messages.GenerateComplete(
            output_token_ids=output.token_ids,
            finish_reason=output.finish_reason or "",
            prompt_tokens=len(result.prompt_token_ids),
            completion_tokens=len(output.token_ids),
            cached_tokens=result.cached_tokens,
            logprobs=self._logprobs(output.token_ids, output.logprobs),
        )
        if isinstance(output.stop_reason, int):
            complete.matched_token_id = output.stop_reason
        return self._messages.GenerateResponse(request_id=request_id, complete=complete)

    def _logprobs(self, ids: Sequence[int], reported: Sequence[Any]) -> list[Any]:
        """All alternatives in the dictionary's order; an id that is not among them has 0."""
        found = []
        for token_id, entry in zip(ids, reported, strict=False):
            top = [
                self._messages.TopLogprob(token_id=other, logprob=value.logprob)
                for other, value in reversed(entry.items())
            ]
            own = entry[token_id].logprob if token_id in entry else 0.0
            found.append(
                self._messages.TokenLogprob(token_id=token_id, logprob=own, top_logprobs=top)
            )
        return found

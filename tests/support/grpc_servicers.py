"""Servers of both protocols, made from the published `.proto` files, over the stand-in for
TensorRT-LLM's package. What each does with a request is written from what TensorRT-LLM's servers
do: which fields they read, with which status they refuse, what they send and when.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import grpc

from tests.support.engine_claims import SLOTS
from tests.support.grpc_bindings import module
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.support.double.llm import LLM
    from tests.support.double.results import RequestOutput

PROTOCOLS = ("trtllm", "openengine")
MOST_STOPS = 64


class Refused(Exception):
    """What a server of these does not do."""


def trouble_of(llm: LLM) -> str | None:
    """Why the package says that its executor is not well; a death that it was not told it does not
    know."""
    worker = llm.worker
    told = worker is not None and worker.error is not None and worker.is_dead.is_set()
    if llm.is_shut_down or llm.plan.crashed or told:
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


class Own:
    """TensorRT-LLM's own protocol. It reads neither salt nor priority. A call that is cancelled
    while a message is under way is not told to it: the generator is closed, and the request goes
    on."""

    def __init__(self, llm: LLM, *, tells_batch: bool = True) -> None:
        self.llm = llm
        self.package = llm.plan.package()
        self.requests: list[Any] = []
        """What was asked, as it came."""
        self.aborted = 0
        self._active: dict[str, RequestOutput] = {}
        self._said = module("trtllm_service_pb2")
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
                    chunk = self._said.GenerateStreamChunk(
                        token_ids=fresh,
                        prompt_tokens=len(result.prompt_token_ids),
                        completion_tokens=len(output.token_ids),
                        cached_tokens=result.cached_tokens,
                        logprobs=self._logprobs(fresh, output.logprobs[sent:]),
                    )
                    yield self._said.GenerateResponse(request_id=request.request_id, chunk=chunk)
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
        return self._said.AbortResponse(success=result is not None)

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        return self._said.HealthCheckResponse(status=trouble_of(self.llm) or "OK")

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        context_tokens = self.llm.arguments.get("max_seq_len", 0)
        return self._said.GetModelInfoResponse(
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
        complete = self._said.GenerateComplete(
            output_token_ids=output.token_ids,
            finish_reason=output.finish_reason or "",
            prompt_tokens=len(result.prompt_token_ids),
            completion_tokens=len(output.token_ids),
            cached_tokens=result.cached_tokens,
            logprobs=self._logprobs(output.token_ids, output.logprobs),
        )
        if isinstance(output.stop_reason, int):
            complete.matched_token_id = output.stop_reason
        return self._said.GenerateResponse(request_id=request_id, complete=complete)

    def _logprobs(self, ids: Sequence[int], told: Sequence[Any]) -> list[Any]:
        """All alternatives in the dictionary's order; an id that is not among them has 0."""
        found = []
        for token_id, entry in zip(ids, told, strict=False):
            top = [
                self._said.TopLogprob(token_id=other, logprob=value.logprob)
                for other, value in reversed(entry.items())
            ]
            own = entry[token_id].logprob if token_id in entry else 0.0
            found.append(self._said.TokenLogprob(token_id=token_id, logprob=own, top_logprobs=top))
        return found


class Open:
    """OpenEngine: it reads no bans, and refuses a priority."""

    def __init__(self, llm: LLM, *, tells_batch: bool = True) -> None:
        self.llm = llm
        self.package = llm.plan.package()
        self.requests: list[Any] = []
        self.aborted = 0
        self.guides: tuple[str, ...] = ()
        """The guides that it says it has."""
        self._active: set[str] = set()
        self._batch = SLOTS if tells_batch else 0
        self._said = module("openengine.v1.generation_pb2")
        self._errors = module("openengine.v1.error_pb2")
        self._life = module("openengine.v1.lifecycle_pb2")
        self._model = module("openengine.v1.model_pb2")
        self._server = module("openengine.v1.server_pb2")

    def join(self, server: grpc.aio.Server) -> None:
        for service in ("Inference", "Control"):
            add(self, "openengine.v1.openengine_pb2_grpc", service, server)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        try:
            params = self._checked(request, dict(context.invocation_metadata()))
            result = self.llm.generate_async(
                list(request.token_ids.ids),
                sampling_params=params,
                streaming=True,
                cache_salt=request.kv.cache_salt or None,
            )
        except Refused as error:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, str(error))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Exception as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))
        self._active.add(request.request_id)
        finished = False
        try:
            sent = 0
            async for _ in result:
                for said in self._events(result, sent):
                    yield self._response(request, **said)
                sent = len(result.outputs[0].token_ids)
            finished = True
        except asyncio.CancelledError:
            raise
        except Exception as error:  # it was accepted: told inside the stream
            finished = True
            fault = self._errors.EngineError(
                code=self._errors.ERROR_CODE_INTERNAL, message=str(error)
            )
            yield self._response(request, error=fault)
        finally:
            self._active.discard(request.request_id)
            if not finished:
                self.aborted += 1
                result.abort()

    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        return self._server.ServerInfo(
            engine_name="tensorrt_llm",
            schema_revision=1,
            minimum_client_revision=1,
            capacity={"max_running_requests": self._batch or None},
        )

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        assert request.model
        info = self._model.ModelInfo(
            model_id="gpt-oss",
            supports_token_ids_input=True,
            max_context_length=self.llm.arguments.get("max_seq_len"),
        )
        can = info.generation
        can.output_logprobs.supported, can.output_logprobs.max_top_n = True, 100
        can.supports_priority, can.supports_cache_salt = False, True
        can.guided_decoding.supported = bool(self.guides)
        modes = self._model.GuidedDecodingMode
        can.guided_decoding.modes.extend(
            modes.Value(f"GUIDED_DECODING_MODE_{name}") for name in self.guides
        )
        return info

    async def Health(self, request: Any, context: Any) -> Any:
        why = trouble_of(self.llm)
        state = self._life.HEALTH_STATE_READY if why is None else self._life.HEALTH_STATE_NOT_READY
        checks = [{"name": "scheduler", "state": state, "message": why or ""}]
        return self._life.HealthResponse(state=state, checks=checks)

    def _checked(self, request: Any, metadata: dict[str, str]) -> Any:
        if not request.request_id or not request.model:
            raise ValueError("request_id and model must be non-empty")
        if request.request_id in self._active:
            raise ValueError("this id is already active")
        if "openengine-priority" in metadata:
            raise Refused("a priority is not supported")
        if len(request.stopping.conditions) > MOST_STOPS:
            raise ValueError("too many stopping conditions")
        sampling, stopping = request.sampling, request.stopping
        names = ("temperature", "top_p", "top_k", "min_p", "seed")
        penalties = ("presence_penalty", "frequency_penalty")
        given = {
            name: getattr(sampling, name)
            for name in (*names, *penalties)
            if sampling.HasField(name)
        }
        if request.response.return_output_logprobs:
            given["logprobs"] = request.response.output_candidates.top_n
        if request.HasField("guided"):
            field = request.guided.WhichOneof("guide")
            if field.upper() not in self.guides:
                raise Refused(f"guided decoding mode {field} is not supported")
            name = {"json_schema": "json", "ebnf_grammar": "grammar"}.get(field, field)
            source = getattr(request.guided, field)
            given["guided_decoding"] = self.package.guided_decoding_params(**{name: source})
        stops = [condition.stop_token_id for condition in stopping.conditions]
        return self.package.sampling_params(
            end_id=end_id(stopping.ignore_eos),
            max_tokens=stopping.max_tokens,
            stop_token_ids=stops or None,
            include_stop_str_in_output=stopping.include_stop_in_output,
            detokenize=request.extra.fields["detokenize"].bool_value,
            **given,
        )

    def _events(self, result: RequestOutput, sent: int) -> list[dict[str, Any]]:
        """What a step is told as: its ids, and beside the last ones the end and the usage."""
        output = result.outputs[0]
        said: list[dict[str, Any]] = []
        if fresh := output.token_ids[sent:]:
            told = itertools.zip_longest(fresh, output.logprobs[sent:])
            tokens = [self._token(*pair) for pair in told]
            said.append({"token": {"output_index": 0, "tokens": tokens}})
        if output.finish_reason is not None:
            end: dict[str, Any] = {"output_index": 0}
            end["reason"] = f"FINISH_REASON_{output.finish_reason.upper()}"
            if isinstance(output.stop_reason, int):
                end["stop_match"] = {"stop_token_id": output.stop_reason}
            prompt, completion = len(result.prompt_token_ids), len(output.token_ids)
            usage = {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
                "cached_prompt_tokens": result.cached_tokens,
            }
            said.append({"finished": end, "usage": usage})
        return said

    def _token(self, token_id: int, told: Any) -> Any:
        one = self._said.TokenInfo(token_id=token_id)
        if told is not None:
            one.logprob = told[token_id].logprob
            ranked = sorted(told.items(), key=lambda pair: pair[1].rank)
            for other, value in ranked:
                one.candidates.add(token_id=other, logprob=value.logprob, rank=value.rank)
        return one

    def _response(self, request: Any, **said: Any) -> Any:
        return self._said.GenerateResponse(request_id=request.request_id, **said)

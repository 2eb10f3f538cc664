"""A server over gRPC in the place of `vllm serve --grpc`, of its published `.proto` file, over any
engine. It does what the package smg-grpc-servicer does with a request: which fields it reads, with
which status it refuses, what it sends and when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from tests.support.grpc_bindings import module
from tests.support.grpc_servicers import add
from tests.support.id_servers import Arrived
from trt_responses.engine import Chunk, GenerateOptions, Guide
from trt_responses.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from trt_responses.engine import Engine, GuideKind, Handle

GUIDES: Mapping[str, GuideKind] = {
    "json_schema": "json_schema",
    "regex": "regex",
    "grammar": "lark",
}


class VllmServicer:
    """vLLM's protocol. A call that is cancelled aborts its request."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.requests: list[Any] = []
        """The requests, as they came."""
        self.aborted = 0
        self.unwell = ""
        """Why it is not healthy."""
        self._running: dict[str, tuple[Handle, Arrived]] = {}
        self._messages = module("vllm_engine_pb2")

    def join(self, server: grpc.aio.Server) -> None:
        add(self, "vllm_engine_pb2_grpc", "VllmEngine", server)

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        sink = Arrived()
        try:
            ids = list(request.tokenized.input_ids)
            handle = self.engine.generate(ids, self._options(request.sampling_params), sink)
        except (ApiError, ValueError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return
        self._running[request.request_id] = (handle, sink)
        finish = None
        try:
            while finish is None:
                chunk = await sink.chunks.get()
                finish = chunk.finish
                if finish == "error":
                    await context.abort(grpc.StatusCode.INTERNAL, chunk.error or "")
                for message in self._messages_of(chunk, request):
                    yield message
        finally:
            if self._running.pop(request.request_id, None) is not None and finish is None:
                self.aborted += 1
                handle.abort()

    async def Abort(self, request: Any, context: Any) -> Any:
        for name in request.request_ids:
            if (running := self._running.pop(name, None)) is not None:
                handle, sink = running
                self.aborted += 1
                handle.abort()
                sink.push(Chunk(finish="length"))
        return self._messages.AbortResponse()

    async def HealthCheck(self, request: Any, context: Any) -> Any:
        return self._messages.HealthCheckResponse(healthy=not self.unwell, message=self.unwell)

    async def GetModelInfo(self, request: Any, context: Any) -> Any:
        context_tokens = self.engine.limits().context_tokens
        return self._messages.GetModelInfoResponse(max_context_length=context_tokens)

    async def GetServerInfo(self, request: Any, context: Any) -> Any:
        return self._messages.GetServerInfoResponse(max_num_seqs=self.engine.limits().max_batch)

    def _options(self, given: Any) -> GenerateOptions:
        guide = None
        if (kind := given.WhichOneof("constraint")) is not None:
            assert given.grammar_from_first_token
            guide = Guide(GUIDES[kind], getattr(given, kind))
        logprobs = given.logprobs if given.HasField("logprobs") else None
        if (logprobs or 0) > 20:
            raise ValueError("Requested sample logprobs of 21, which is greater than max allowed")
        return GenerateOptions(
            given.max_tokens,
            tuple(given.stop_token_ids),
            given.temperature,
            seed=given.seed if given.HasField("seed") else None,
            logprobs=logprobs,
            guide=guide,
            banned_ids=tuple(given.logit_bias),
        )

    def _messages_of(self, chunk: Chunk, request: Any) -> list[Any]:
        """A chunk with the new ids, and at the end a message that repeats them."""
        names = self._messages
        logprobs, many = names.OutputLogProbs(), request.sampling_params.logprobs
        for entry in chunk.logprobs:
            logprobs.token_ids.append(entry.token_id)
            logprobs.token_logprobs.append(entry.logprob)
            if many:
                tops = dict([(entry.token_id, entry.logprob), *entry.top])
                best = dict(list(tops.items())[:many])
                top = names.TopLogProbs(values=best.values(), token_ids=best.keys())
                logprobs.top_logprobs.append(top)
        cached = chunk.cached_tokens or 0
        new = names.GenerateStreamChunk(
            token_ids=chunk.token_ids, cached_tokens=cached, output_logprobs=logprobs
        )
        messages = [names.GenerateResponse(chunk=new)]
        if chunk.finish is not None:
            last = names.GenerateComplete(
                output_ids=chunk.token_ids, finish_reason=chunk.finish, cached_tokens=cached
            )
            messages.append(names.GenerateResponse(complete=last))
        return messages

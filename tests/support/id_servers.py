"""Servers in the place of vLLM 0.33 and SGLang 0.5.23, over any engine: routes, fields and refusals
as their packages publish them. They prove fields and ids, and not those servers.

A field that the package does not have is noted as misuse. As a program it plays a script.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.echo_engines import program, scripted
from tests.support.scripted.engine import ScriptedEngine
from tests.support.serving import serving
from trt_responses.engine import GenerateOptions, Guide
from trt_responses.errors import ApiError
from trt_responses.tokens.control import VOCABULARY_SIZE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request

    from trt_responses.engine import Chunk, Engine, GuideKind

VLLM = {
    "request_id",
    "token_ids",
    "sampling_params",
    "model",
    "reasoning_ended",
    "stream",
    "stream_options",
    "cache_salt",
    "priority",
}
VLLM_SAMPLING = {
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop_token_ids",
    "ignore_eos",
    "max_tokens",
    "logprobs",
    "detokenize",
    "skip_special_tokens",
    "logit_bias",
    "structured_outputs",
    "prompt_logprob_token_ids",
}
VLLM_GUIDES: Mapping[str, GuideKind] = {"json": "json_schema", "regex": "regex", "grammar": "lark"}
SGLANG = {
    "input_ids",
    "sampling_params",
    "return_logprob",
    "top_logprobs_num",
    "stream",
    "lora_path",
    "priority",
    "extra_key",
}
SGLANG_SAMPLING = {
    "max_new_tokens",
    "stop_token_ids",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "json_schema",
    "regex",
    "skip_special_tokens",
    "no_stop_trim",
    "logit_bias",
    "sampling_seed",
}
SALT_BYTES = 128
COUNTS = "counts"
"""In the place of a script: `several.Paced`."""


class Refused(Exception):
    """The server refuses a request: a message, and its status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Arrived:
    """A sink whose chunks are awaited."""

    def __init__(self) -> None:
        self.chunks: asyncio.Queue[Chunk] = asyncio.Queue()

    def push(self, chunk: Chunk, /) -> None:
        self.chunks.put_nowait(chunk)


class IdServer:
    """What both kinds share: requests of an engine as events, and faults that a test sets."""

    path = ""
    version = ""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[Mapping[str, str]] = []
        self.misuse: list[str] = []
        self.aborted = 0
        self.key = ""
        self.adapters: tuple[str, ...] = ()
        self.priorities = True
        self.max_logprobs = 20
        self.status = 200
        """Of health and of each request."""
        self.cut_after: int | None = None
        """Break each stream after so many events."""
        self.garbled = False
        self.thawed = asyncio.Event()
        self.thawed.set()

    def app(self) -> Starlette:
        ways = {path: self._guarded(answer) for path, answer in self.routes().items()}
        routes = [Route(path, way, methods=["GET", "POST"]) for path, way in ways.items()]
        return Starlette(routes=[*routes, Route("/health", self._health)])

    def routes(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def options(self, body: Mapping[str, Any]) -> tuple[list[int], GenerateOptions]:
        """The request of a body. Raises a `Refused`."""
        raise NotImplementedError

    def events(self, chunk: Chunk, sent: Sent) -> list[dict[str, Any]]:
        raise NotImplementedError

    def error(self, message: str, status: int) -> dict[str, Any]:
        return {"error": {"message": message, "type": "BadRequestError", "code": status}}

    def check(self, fields: Mapping[str, Any], known: set[str]) -> None:
        self.misuse += sorted(fields.keys() - known)

    async def _health(self, request: Request) -> Response:
        await self.thawed.wait()
        return Response(status_code=self.status)

    def _guarded(self, answer: Any) -> Any:
        async def way(request: Request) -> Response:
            await self.thawed.wait()
            if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
                return JSONResponse({"error": "Unauthorized"}, 401)
            try:
                reply: Response = await answer(request)
            except Refused as refused:
                return JSONResponse(self.error(str(refused), refused.status), refused.status)
            return reply

        return way

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.heads.append(request.headers)
        if self.status != 200:
            raise Refused("EngineCore encountered an issue", self.status)
        prompt, options = self.options(body)
        sink, sent = Arrived(), Sent(body, len(prompt))
        try:
            handle = self.engine.generate(prompt, options, sink)
        except ApiError as error:
            raise Refused(error.message) from None

        gone = asyncio.ensure_future(request.receive())

        async def events() -> AsyncIterator[bytes]:
            try:
                async for number, event in self._events(sink, sent, gone):
                    await self.thawed.wait()
                    if self.cut_after == number:
                        raise ConnectionResetError
                    content = b"{half" if self.garbled else json.dumps(event).encode()
                    yield b"data: " + content + b"\n\n"
                yield b"data: [DONE]\n\n"
            finally:
                gone.cancel()
                self.aborted += not sent.finished
                handle.abort()

        if body.get("stream"):
            return StreamingResponse(events(), media_type="text/event-stream")
        return JSONResponse([event async for _, event in self._events(sink, sent, gone)][-1])

    async def _events(
        self, sink: Arrived, sent: Sent, gone: asyncio.Future[Any]
    ) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        number = 0
        while not sent.finished:
            arriving = asyncio.ensure_future(sink.chunks.get())
            await asyncio.wait((arriving, gone), return_when=asyncio.FIRST_COMPLETED)
            if not arriving.done():  # the client has left
                arriving.cancel()
                return
            chunk = arriving.result()
            sent.take(chunk)
            for event in self.events(chunk, sent):
                yield number, event
                number += 1


class Sent:
    """What a stream has sent."""

    def __init__(self, body: Mapping[str, Any], prompt_tokens: int) -> None:
        self.body = body
        self.prompt_tokens = prompt_tokens
        self.ids: list[int] = []
        self.logprobs: list[Any] = []
        self.cached = 0
        self.finished = False

    def take(self, chunk: Chunk) -> None:
        self.ids += chunk.token_ids
        self.logprobs += chunk.logprobs
        self.cached = chunk.cached_tokens or self.cached
        self.finished = chunk.finish is not None


class VllmServer(IdServer):
    """`vllm serve --enable-scale-out --enable-prompt-tokens-details`."""

    path = "/inference/v1/generate"
    version = "0.33.0"
    scale_out = True
    reports_batch = True

    def routes(self) -> Mapping[str, Any]:
        return {self.path: self.generate, "/v1/models": self._models, "/version": self._version}

    async def _version(self, request: Request) -> Response:
        return JSONResponse({"version": self.version})

    async def _models(self, request: Request) -> Response:
        context = self.engine.limits().context_tokens
        base = {"id": "openai/gpt-oss", "parent": None, "max_model_len": context}
        others = [{"id": name, "parent": "openai/gpt-oss"} for name in self.adapters]
        return JSONResponse({"object": "list", "data": [base, *others]})

    def options(self, body: Mapping[str, Any]) -> tuple[list[int], GenerateOptions]:
        if not self.scale_out:
            raise Refused("Scale-out endpoints are disabled.", 403)
        sampling = body["sampling_params"]
        self.check(body, VLLM)
        self.check(sampling, VLLM_SAMPLING)
        most = self.engine.limits().max_batch
        if sampling.get("n", 1) > most:
            spelled = f"max_num_seqs ({most})" if self.reports_batch else "limit"
            raise Refused(f"sampling_params.n must be at most the server's {spelled}, got n.")
        if body.get("priority") and not self.priorities:
            raise Refused("Got priority but priority scheduling is not enabled.")
        if (sampling.get("logprobs") or 0) > self.max_logprobs:
            raise Refused(f"Requested too many, greater than max allowed: {self.max_logprobs}")
        salt = body.get("cache_salt")
        if salt is not None and (not 0 < len(salt) <= SALT_BYTES or set(salt) & set("@/\\\0")):
            raise Refused("Parameter 'cache_salt' must be at most 128 characters.")
        if (model := body.get("model")) not in (None, "openai/gpt-oss", *self.adapters):
            raise Refused(f"The model `{model}` does not exist.", 404)
        bias = {int(n): value for n, value in (sampling.get("logit_bias") or {}).items()}
        if any(n >= VOCABULARY_SIZE or not -100 <= value <= 100 for n, value in bias.items()):
            raise Refused("logit_bias contains out-of-vocab token ids")
        guide, structured = None, sampling.get("structured_outputs")
        if structured is not None:
            assert body["reasoning_ended"] is True
            ((name, source),) = structured.items()
            guide = Guide(VLLM_GUIDES[name], source)
            if guide.kind not in self.engine.limits().guides:
                raise Refused("Structured output processing only supports one backend per engine.")
        options = GenerateOptions(
            sampling.get("max_tokens", 16),
            tuple(sampling.get("stop_token_ids", ())),
            sampling.get("temperature", 1.0),
            seed=sampling.get("seed"),
            logprobs=sampling.get("logprobs"),
            guide=guide,
            banned_ids=tuple(bias),
            priority=0.5 - body.get("priority", 0) / 100,
        )
        return body["token_ids"], options

    def events(self, chunk: Chunk, sent: Sent) -> list[dict[str, Any]]:
        if chunk.finish == "error":
            return [self.error(chunk.error or "", 500)]
        content = [
            {
                "token_id": entry.token_id,
                "logprob": entry.logprob,
                "rank": 1,
                "top_logprobs": [{"token_id": n, "logprob": p} for n, p in _with_own(entry)],
            }
            for entry in chunk.logprobs
        ]
        asked = sent.body["sampling_params"].get("logprobs") is not None
        choice = {
            "index": 0,
            "token_ids": list(chunk.token_ids),
            "finish_reason": chunk.finish,
            "stop_reason": chunk.stop_id,
            "logprobs": {"content": content} if asked else None,
        }
        event = {"request_id": "generate-tokens-1", "choices": [choice], "usage": None}
        usage = {
            "prompt_tokens": sent.prompt_tokens,
            "completion_tokens": len(sent.ids),
            "prompt_tokens_details": {"cached_tokens": sent.cached},
        }
        last = {"request_id": "generate-tokens-1", "choices": [], "usage": usage}
        return [event, last] if sent.finished else [event] if chunk.token_ids else []


class SglangServer(IdServer):
    """`sglang serve`; with `repeats`, without `--incremental-streaming-output`."""

    path = "/generate"
    version = "0.5.23"
    repeats = True
    lowest_first = False

    def routes(self) -> Mapping[str, Any]:
        return {self.path: self.generate, "/v1/models": self._models, "/server_info": self._info}

    async def _models(self, request: Request) -> Response:
        context = self.engine.limits().context_tokens
        base = {"id": "gpt-oss", "parent": None, "max_model_len": context}
        others = [{"id": name, "parent": "gpt-oss"} for name in self.adapters]
        return JSONResponse({"object": "list", "data": [base, *others]})

    async def _info(self, request: Request) -> Response:
        info = {
            "version": self.version,
            "max_running_requests": self.engine.limits().max_batch,
            "enable_priority_scheduling": self.priorities,
            "schedule_low_priority_values_first": self.lowest_first,
            "incremental_streaming_output": not self.repeats,
        }
        return JSONResponse(info)

    def options(self, body: Mapping[str, Any]) -> tuple[list[int], GenerateOptions]:
        sampling = body["sampling_params"]
        self.check(body, SGLANG)
        self.check(sampling, SGLANG_SAMPLING)
        kinds: tuple[GuideKind, ...] = ("json_schema", "regex")
        guides = [Guide(kind, sampling[kind]) for kind in kinds if kind in sampling]
        if guides and guides[0].kind not in self.engine.limits().guides:
            raise Refused("Failed to compile the grammar.")
        if sampling["top_k"] != -1 and sampling["top_k"] < 1:
            raise Refused("top_k must be -1 (disable) or at least 1")
        options = GenerateOptions(
            sampling["max_new_tokens"],
            tuple(sampling["stop_token_ids"]),
            sampling["temperature"],
            seed=sampling.get("sampling_seed"),
            logprobs=body.get("top_logprobs_num") if body.get("return_logprob") else None,
            guide=guides[0] if guides else None,
            banned_ids=tuple(map(int, sampling.get("logit_bias", {}))),
        )
        return body["input_ids"], options

    def events(self, chunk: Chunk, sent: Sent) -> list[dict[str, Any]]:
        if chunk.finish is None and not chunk.token_ids:
            return []
        known = 0 if self.repeats else len(sent.ids) - len(chunk.token_ids)
        finishes = {
            "stop": {"type": "stop", "matched": chunk.stop_id},
            "length": {"type": "length", "length": len(sent.ids)},
            "error": {"type": "abort", "message": chunk.error, "status_code": 500},
        }
        meta: dict[str, Any] = {
            "id": "1",
            "finish_reason": finishes.get(chunk.finish or ""),
            "prompt_tokens": sent.prompt_tokens,
            "completion_tokens": len(sent.ids),
            "cached_tokens": sent.cached,
        }
        if sent.body.get("return_logprob"):
            scored = sent.logprobs[known:]
            meta["output_token_logprobs"] = [(p.logprob, p.token_id, None) for p in scored]
            if sent.body["top_logprobs_num"]:
                meta["output_top_logprobs"] = [[(p, n, None) for n, p in s.top] for s in scored]
        return [{"text": "", "output_ids": sent.ids[known:], "meta_info": meta}]


def _with_own(entry: Any) -> list[tuple[int, float]]:
    """The chosen id first, then the others by rank."""
    own = (entry.token_id, entry.logprob)
    return [own, *(other for other in entry.top if other[0] != entry.token_id)]


KINDS: Mapping[str, type[IdServer]] = {"vllm": VllmServer, "sglang": SglangServer}


@asynccontextmanager
async def id_server(server: IdServer, port: int = 0) -> AsyncIterator[int]:
    """The port of a server on this event loop."""
    await server.engine.start()
    async with serving(server.app(), port=port) as address:
        try:
            yield address.port
        finally:
            server.thawed.set()
            await server.engine.stop(0)


@asynccontextmanager
async def server_process(
    kind: str, port: int = 0, script: str = "auto"
) -> AsyncIterator[tuple[Any, int]]:
    """A server in a process of its own, which may be killed, and its port. It plays a script, or
    counts at the pace of a small model."""
    process = await asyncio.create_subprocess_exec(
        *program(__name__), kind, str(port), script, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process, int(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _playing(script: str) -> Engine:
    if script == COUNTS:
        from tests.support.several import Paced

        return Paced()
    from trt_responses.features.script.engine import ScriptEngine
    from trt_responses.features.script.rules import load
    from trt_responses.tokens.vocabulary import load as vocabulary

    return ScriptEngine(load(script), vocabulary())


async def _serve(kind: str, port: int, script: str) -> None:
    async with id_server(KINDS[kind](_playing(script)), port) as bound:
        print(bound, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    kind, port, script = sys.argv[-3:]
    asyncio.run(_serve(kind, int(port), script))


def echoing(kind: str) -> IdServer:
    """One whose ids say the prompt again."""
    engine = scripted()
    assert isinstance(engine, ScriptedEngine)
    return KINDS[kind](engine)

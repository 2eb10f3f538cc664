"""An engine of another server over gRPC: `trtllm-serve --grpc` or `vllm serve --grpc`.

This module finds the server's protocol, and sends and aborts requests; `distant` has the engine's
life, and a protocol makes and reads messages.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from trt_responses.engine import Chunk, GenerateOptions, Limits, Loss, Sink
from trt_responses.engines.ask import Ask, ignored_options
from trt_responses.engines.distant import Away, DistantEngine, Patience, Trouble
from trt_responses.engines.grpc.protocol import Fault, IdProtocol, fault_of
from trt_responses.engines.grpc.trtllm import TrtLlmProtocol
from trt_responses.engines.grpc.vllm import VllmProtocol
from trt_responses.engines.id_events import Ending, Part
from trt_responses.errors import InvalidRequest, StartupError

CHANNEL = (
    # The last message of an answer repeats all its ids, with all alternatives.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Reconnect at once to an engine that comes back, and not after two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


ABORTS, ABORT_AGAIN_S = 5, 0.05
"""Attempts to abort a request that the engine may not have received yet, and their interval."""


class Address(NamedTuple):
    """The address of an engine, and its model."""

    host: str
    port: int
    model: str

    @property
    def target(self) -> str:
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.target}/{self.model}"


def address_of(text: str) -> Address:
    """The address in a text `host:port/model`."""
    place, _, model = text.partition("/")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or not model:
        raise StartupError(
            f"{text!r:.100} is not a gRPC engine: use host:port/model, with the model name that "
            "clients use."
        )
    return Address(host, int(port), model)


class GrpcEngine(DistantEngine):
    """The engine at a gRPC address."""

    def __init__(
        self,
        address: Address,
        patience: Patience | None = None,
        *,
        find_ignored: Callable[[Ask, Sequence[int]], Awaitable[frozenset[str]]] = ignored_options,
    ) -> None:
        super().__init__(address, patience, find_ignored=find_ignored)
        self._target = address.target
        self._names = (f"{uuid.uuid4().hex[:12]}-{n}" for n in itertools.count(1))
        """Request ids, distinct from those of other front ends of the same engine."""
        self._channel: Any = None
        self._protocol: IdProtocol | None = None

    async def start(self) -> None:
        self._channel = _channel(self._target)
        await super().start()

    async def _describe(self) -> Limits:
        import grpc

        answer_s = self._patience.answer_s
        self._protocol = await _connected_protocol(self._channel, answer_s)
        try:
            return await self._protocol.describe(answer_s)
        except grpc.aio.AioRpcError as error:
            raise Away(str(fault_of(error))) from None

    async def _trouble(self) -> Trouble | None:
        assert self._protocol is not None
        return await _trouble_of(self._protocol, self._patience.answer_s)

    async def _close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    def _begin(
        self, prompt_ids: Sequence[int], options: GenerateOptions, left: int, sink: Sink
    ) -> Request:
        assert self._protocol is not None
        name = "-".join(filter(None, (options.request_id, next(self._names))))
        request = Request(name, options, left, sink, self)
        if left <= 0:
            asyncio.get_running_loop().call_soon(request.end, Chunk(finish="length"))
            return request
        try:
            message = self._protocol.request(name, prompt_ids, options, left)
        except (TypeError, ValueError) as error:  # a number out of the message's range
            raise InvalidRequest(f"The request cannot be sent to the engine: {error}") from None
        metadata = tuple(options.trace_headers.items())
        request.call = self._protocol.generate(message, metadata=metadata)
        self._running[request] = None
        self._spawn(request.follow(self._protocol))
        return request

    def abandon(self, request: Request) -> None:
        """Abort a request whose call is still open."""
        self._spawn(self._abandoned(request))

    async def _abandoned(self, request: Request) -> None:
        """Abort a request on the engine; its call may not have arrived there yet."""
        import grpc

        assert self._protocol is not None
        answer_s = self._patience.answer_s
        with suppress(grpc.aio.AioRpcError, TimeoutError):
            for _ in range(ABORTS):
                ends = await self._protocol.abort(request.name, answer_s)
                if ends:
                    async with asyncio.timeout(answer_s):
                        await request.call.code()
                if ends or request.call.done():
                    break
                await asyncio.sleep(ABORT_AGAIN_S)
        request.call.cancel()

    async def loss(self, fault: Fault) -> Loss | None:
        """Whether a failed call means that the engine is lost."""
        if fault.status == "UNAVAILABLE":
            self._go_down(f"The engine is unreachable: {fault}.")
            return "died"
        return await self._judge()


class Request:
    """One request. Also its handle."""

    def __init__(
        self,
        name: str,
        options: GenerateOptions,
        left: int,
        sink: Sink,
        engine: GrpcEngine,
    ) -> None:
        self.name = name
        self.options = options
        self.call: Any = None
        """The call that streams its messages, once started."""
        self.over = False
        self.begun_ns = time.monotonic_ns()
        self.last_step_ns = 0
        """The time of the last message, or 0."""
        self._left = left
        self._sink = sink
        self._engine = engine
        self._last: Chunk | None = None
        """The last chunk, ended by its ids; it waits for the engine's own end message."""

    async def follow(self, protocol: IdProtocol) -> None:
        """Read the call's messages to its end, even after the request ended: leaving earlier makes
        the engine abort."""
        import grpc

        ending = Ending(self.options, self._left, protocol.ids)
        fault = Fault("UNKNOWN", "it ended the request without saying why")
        try:
            async for message in self.call:
                if not self.over:
                    self._take(protocol.read(message, ending.seen, self.options), ending)
        except asyncio.CancelledError:
            if not self.over:
                raise
        except grpc.aio.AioRpcError as error:
            fault = fault_of(error)
        if not self.over:
            await self._fail(fault)

    def abort(self) -> None:
        if not self.over:
            self._leave()
            self._abandon()

    def break_off(self, reason: str, lost: Loss | None = None) -> None:
        """End the request with an error, and the call with it."""
        if not self.over:
            self.end(Chunk(finish="error", error=reason, lost=lost))
            self._abandon()

    def end(self, chunk: Chunk) -> None:
        """Push the last chunk, unless the request is over already."""
        if not self.over:
            self._leave()
            self._sink.push(chunk)

    def _take(self, part: Part, ending: Ending) -> None:
        """Push new ids. If they end the request, wait for the engine's end message."""
        self.last_step_ns = time.monotonic_ns()
        if self._last is None:
            chunk = ending.cut(part)
            if chunk.finish is not None:
                self._last = chunk
            elif chunk.token_ids:
                self._sink.push(ending.with_cached(chunk, part))
        if self._last is not None and part.end is not None:
            self.end(ending.with_cached(self._last, part))

    async def _fail(self, fault: Fault) -> None:
        if self._last is not None:  # its ids ended the request
            self.end(self._last)
        elif (refusal := fault.refusal) is not None:
            self.end(Chunk(finish="error", error=refusal.message, refusal=refusal))
        else:
            lost = await self._engine.loss(fault)
            self.break_off(f"The engine failed: {fault}.", lost)

    def _leave(self) -> None:
        self.over = True
        self._engine.over(self)

    def _abandon(self) -> None:
        if self.call is not None and not self.call.done():
            self._engine.abandon(self)


def _channel(target: str) -> Any:
    """A channel, which connects on first use."""
    try:
        import grpc
    except ImportError:
        raise StartupError(
            f"{target}: gRPC needs the package grpcio: pip install 'trt-responses[grpc]'."
        ) from None
    return grpc.aio.insecure_channel(target, CHANNEL)


async def _connected_protocol(channel: Any, answer_s: float) -> IdProtocol:
    """The protocol of a server that accepts requests. Raises an `Away` if it does not, and a
    `StartupError` if the server speaks another protocol."""
    for protocol in (TrtLlmProtocol(channel), VllmProtocol(channel)):
        trouble = await _trouble_of(protocol, answer_s)
        if trouble is None:
            return protocol
        if trouble.status != "UNIMPLEMENTED":
            raise Away(trouble.reason)
    raise StartupError(
        "the gRPC server there speaks neither TensorRT-LLM's protocol nor vLLM's: start the engine "
        "with `trtllm-serve MODEL --grpc` or `vllm serve MODEL --grpc`."
    )


async def _trouble_of(protocol: IdProtocol, answer_s: float) -> Trouble | None:
    """Why the engine accepts no requests; None if it does."""
    import grpc

    try:
        why = await protocol.trouble(answer_s)
    except grpc.aio.AioRpcError as error:
        fault = fault_of(error)
        return Trouble(str(fault), fault.status)
    return None if why is None else Trouble(why)

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
from trt_responses.engines.grpc.request import Request
from trt_responses.engines.grpc.trtllm import TrtLlmProtocol
from trt_responses.engines.grpc.vllm import VllmProtocol
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
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__(address, patience, find_ignored=find_ignored, sleep=sleep, now_ns=now_ns)
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
        now_ns, judge = self.now_ns, self._loss
        request = Request(name, options, left, sink, now_ns, self.over, self._abandon, judge)
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

    def _abandon(self, request: Request) -> None:
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
                await self._sleep(ABORT_AGAIN_S)
        request.call.cancel()

    async def _loss(self, fault: Fault) -> Loss | None:
        """Whether a failed call means that the engine is lost."""
        if fault.status == "UNAVAILABLE":
            self._go_down(f"The engine is unreachable: {fault}.")
            return "died"
        trouble = await self._judge()
        if trouble is None:
            return None
        self._go_down(f"The engine is unreachable: {trouble.reason}.")
        return "died"


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

"""The gRPC engines: TensorRT-LLM's `trtllm-serve --grpc`, and SGLang's scheduler.

Field numbers are those of the published `.proto` files.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from responses_conformance.mocks.play import END_IDS
from responses_conformance.mocks.protobuf import message, numbers, read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from responses_conformance.mocks.play import Play, Player

CONTEXT, BATCH, VOCABULARY = 131_072, 256, 201_088


@dataclass(frozen=True)
class Request:
    """What a mock reads of a `GenerateRequest`."""

    name: bytes
    prompt: list[int]
    most: int | None
    stops: list[int]
    streaming: bool
    keeps_stop: bool
    """Whether the id that stops is among the output."""


@dataclass(frozen=True)
class Wire:
    """One engine's service."""

    service: str
    request: Callable[[bytes], Request]
    messages: Callable[[Request, Play, int], Iterator[bytes]]
    """The `GenerateResponse`s of a play, in steps of so many ids."""
    answers: Mapping[str, bytes]
    """The replies to calls that ask for no generation."""


# --- TensorRT-LLM -------------------------------------------------------------------------------


def _trtllm_request(data: bytes) -> Request:
    fields = read(data)
    prompt = numbers(read(fields.get(2, [b""])[0]).get(2, ()))
    return Request(
        fields.get(1, [b""])[0],
        prompt,
        fields.get(5, [None])[0],
        numbers(fields.get(22, ())),
        bool(fields.get(6, [0])[0]),
        bool(fields.get(26, [0])[0]),
    )


def _trtllm_messages(request: Request, play: Play, step: int) -> Iterator[bytes]:
    ids = _seen(request, play)
    if request.streaming:
        for at in range(0, len(ids), step):
            fresh = ids[at : at + step]
            chunk = {1: fresh, 3: len(request.prompt), 4: at + len(fresh)}
            yield message({1: request.name, 2: message(chunk)})
    whole = {1: ids, 3: play.finish, 5: len(request.prompt), 6: len(ids), 13: play.stop_id}
    yield message({1: request.name, 3: message(whole)})


TRTLLM = Wire(
    "trtllm.TrtllmService",
    _trtllm_request,
    _trtllm_messages,
    {
        "HealthCheck": message({1: "OK"}),
        "Abort": message({1: 1}),
        "GetModelInfo": message({1: "gpt-oss", 2: CONTEXT, 3: CONTEXT, 4: BATCH, 5: VOCABULARY}),
        "GetServerInfo": message({1: "1.2.1", 2: "pytorch", 3: 1, 4: 1, 5: 1, 6: 1}),
    },
)

# --- SGLang -------------------------------------------------------------------------------------


def _sglang_request(data: bytes) -> Request:
    fields = read(data)
    prompt = numbers(read(fields.get(2, [b""])[0]).get(2, ()))
    sampling = read(fields.get(4, [b""])[0])
    return Request(
        fields.get(1, [b""])[0],
        prompt,
        sampling.get(8, [None])[0],
        numbers(sampling.get(10, ())),
        bool(fields.get(17, [0])[0]),
        keeps_stop=True,  # its detokeniser trims, which does not stand before gRPC
    )


def _sglang_messages(request: Request, play: Play, step: int) -> Iterator[bytes]:
    ids = _seen(request, play)
    if request.streaming:
        for at in range(0, len(ids), step):
            fresh = ids[at : at + step]
            chunk = {1: fresh, 2: len(request.prompt), 3: at + len(fresh)}
            yield message({1: request.name, 2: message(chunk)})
    whole = {1: ids, 2: play.finish, 3: len(request.prompt), 4: len(ids), 8: play.stop_id}
    yield message({1: request.name, 3: message(whole)})


SGLANG = Wire(
    "sglang.grpc.scheduler.SglangScheduler",
    _sglang_request,
    _sglang_messages,
    {
        "HealthCheck": message({1: 1, 2: "OK"}),
        "Abort": message({1: 1}),
        "GetModelInfo": message(
            {
                **{1: "gpt-oss", 2: "gpt-oss", 3: 1, 6: "gpt-oss", 7: CONTEXT, 8: VOCABULARY},
                **{10: "gpt_oss", 11: list(END_IDS), 14: CONTEXT},
                15: "GptOssForCausalLM",
            }
        ),
        "GetServerInfo": message({7: "0.5.23", 8: "grpc", 10: 1_048_576}),
        "GetLoads": b"",
    },
)


def _seen(request: Request, play: Play) -> list[int]:
    """The ids of the output: an engine leaves out the one that stops, unless it is wanted."""
    if play.stop_id is not None and not request.keeps_stop:
        return list(play.ids[:-1])
    return list(play.ids)


class Service(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc ships no types
    """A service whose messages stay bytes."""

    def __init__(self, wire: Wire, player: Player, step: int = 1) -> None:
        self._wire, self._player, self._step = wire, player, step

    def service(self, details: Any) -> Any:
        service, _, name = details.method.removeprefix("/").rpartition("/")
        if service != self._wire.service:
            return None
        if name == "Generate":
            return grpc.unary_stream_rpc_method_handler(self._generate)
        if (answer := self._wire.answers.get(name)) is None:
            return None

        async def reply(_: bytes, __: Any) -> bytes:
            return answer

        return grpc.unary_unary_rpc_method_handler(reply)

    async def _generate(self, data: bytes, _: Any) -> AsyncIterator[bytes]:
        request = self._wire.request(data)
        play = self._player.play(request.prompt, request.most, request.stops)
        for each in self._wire.messages(request, play, self._step):
            yield each


async def started(wire: Wire, player: Player, port: int = 0, step: int = 1) -> tuple[Any, int]:
    """A server, and its port."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Service(wire, player, step),))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, port


async def serve(wire: Wire, player: Player, port: int, step: int) -> None:
    """Serve until cancelled; the first line of output says where."""
    _, port = await started(wire, player, port, step)
    print(f"{wire.service} on grpc://127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()

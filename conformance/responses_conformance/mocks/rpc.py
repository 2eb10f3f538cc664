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
    from collections.abc import AsyncIterator, Iterator, Mapping

    from responses_conformance.mocks.play import Player

CONTEXT, BATCH, VOCABULARY = 131_072, 256, 201_088


@dataclass(frozen=True)
class Wire:
    """One engine's service: the numbers of the fields that a mock reads and writes."""

    service: str
    sampling: int
    """Of the message with the limit and the stops; 0: they stand in the request itself."""
    most: int
    stops: int
    streaming: int
    keeps_stop: int
    """Of the wish for the id that stops; 0: it is among the output in any case."""
    chunk: tuple[int, int, int]
    """Of ids, the prompt's length, and the ids so far."""
    whole: tuple[int, int, int, int, int]
    """Of ids, the finish, the prompt's length, the count of ids, and the id that stopped."""
    answers: Mapping[str, bytes]
    """The replies to calls that ask for no generation."""

    def messages(self, data: bytes, player: Player, step: int) -> Iterator[bytes]:
        """The `GenerateResponse`s to a `GenerateRequest`, in steps of so many ids."""
        fields = read(data)
        prompt = numbers(read(fields.get(2, [b""])[0]).get(2, ()))
        sampling = read(fields.get(self.sampling, [b""])[0]) if self.sampling else fields
        most, stops = sampling.get(self.most, [None])[0], numbers(sampling.get(self.stops, ()))
        play, name = player.play(prompt, most, stops), fields.get(1, [b""])[0]
        kept = not self.keeps_stop or fields.get(self.keeps_stop, [0])[0]
        ids = list(play.ids if kept or play.stop_id is None else play.ids[:-1])
        if fields.get(self.streaming, [0])[0]:
            for at in range(0, len(ids), step):
                fresh = ids[at : at + step]
                chunk = zip(self.chunk, (fresh, len(prompt), at + len(fresh)), strict=True)
                yield message({1: name, 2: message(dict(chunk))})
        values = (ids, play.finish, len(prompt), len(ids), play.stop_id)
        yield message({1: name, 3: message(dict(zip(self.whole, values, strict=True)))})


TRTLLM = Wire(
    service="trtllm.TrtllmService",
    sampling=0,
    most=5,
    stops=22,
    streaming=6,
    keeps_stop=26,
    chunk=(1, 3, 4),
    whole=(1, 3, 5, 6, 13),
    answers={
        "HealthCheck": message({1: "OK"}),
        "Abort": message({1: 1}),
        "GetModelInfo": message({1: "gpt-oss", 2: CONTEXT, 3: CONTEXT, 4: BATCH, 5: VOCABULARY}),
        "GetServerInfo": message({1: "1.2.1", 2: "pytorch", 3: 1, 4: 1, 5: 1, 6: 1}),
    },
)

SGLANG = Wire(
    service="sglang.grpc.scheduler.SglangScheduler",
    sampling=4,
    most=8,
    stops=10,
    streaming=17,
    keeps_stop=0,  # its detokeniser trims, which does not stand before gRPC
    chunk=(1, 2, 3),
    whole=(1, 2, 3, 4, 8),
    answers={
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
        for each in self._wire.messages(data, self._player, self._step):
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
    server, port = await started(wire, player, port, step)
    try:
        print(f"{wire.service} on grpc://127.0.0.1:{port}", flush=True)
        await asyncio.Event().wait()
    finally:
        await server.stop(None)

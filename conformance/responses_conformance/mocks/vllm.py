"""vLLM's engine core over ZMQ and msgpack, as its Python and its Rust front end and SMG speak it.

`python -m responses_conformance.mocks.vllm JSON` runs where pyzmq and msgspec are installed. The
JSON names the sockets: `inputs` and `outputs`, or `handshake`, where the front end names them; and
what is played: `script`, `record` and `step`, or a benchmark's `plays`: by the `max_tokens` of a
request, its ids and the steps a second (0: as many as it can). One message a step serves all.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from responses_conformance.mocks.play import Play, Player

if TYPE_CHECKING:
    from collections.abc import Callable

    Choose = Callable[[list[Any]], tuple[Play, int]]

IDENTITY = (0).to_bytes(2, "little")
ADD, ABORT, UTILITY = b"\x00", b"\x01", b"\x03"
FINISHES = {"stop": 0, "length": 1}
HANDSHAKE_S = 600
CONTEXT = 131_072
READY = {
    "max_model_len": CONTEXT,
    "num_gpu_blocks": 65_536,
    "block_size": 16,
    "dp_stats_address": None,
    "dtype": "bfloat16",
    "vllm_version": "0.33.0",
    "world_size": 1,
    "data_parallel_size": 1,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "data_parallel_rank": 0,
    "max_num_seqs": 4096,
    "max_num_batched_tokens": CONTEXT,
    "instance_id": "mock",
    "supports_lora": False,
    "max_loras": 0,
    "kv_cache_size_tokens": 1_048_576,
    "kv_cache_max_concurrency": 4096.0,
}

UTILITIES = {"get_supported_tasks": ["generate"]}
"""What calls of the engine's methods return; others return nothing."""

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


class Running:
    """A request, and the ids that it has not had yet."""

    __slots__ = ("at", "play", "request_id", "step", "steps_a_second")

    def __init__(self, request_id: str, play: Play, step: int, steps_a_second: int) -> None:
        self.request_id, self.play = request_id, play
        self.step, self.steps_a_second = step, steps_a_second
        self.at = 0

    def output(self) -> list[Any]:
        """Its next ids, as an `EngineCoreOutput`; the last one with its reason."""
        ids = list(self.play.ids[self.at : self.at + self.step])
        self.at += self.step
        if self.at < len(self.play.ids):
            return [self.request_id, ids]
        finish = FINISHES[self.play.finish]
        return [self.request_id, ids, None, None, None, finish, self.play.stop_id]


class Core:
    """The requests that run, between a front end's two sockets."""

    def __init__(self, choose: Choose, context: zmq.Context[Any], step: int = 1) -> None:
        """`choose` gives what a request gets, and the steps a second."""
        self._choose, self._step_size = choose, step
        self._running: dict[str, Running] = {}
        self._due_s = 0.0
        self._context = context

    def connect(self, inputs: str, outputs: str) -> None:
        """Say that the engine is ready, on the front end's input socket."""
        self._input = self._context.socket(zmq.DEALER)
        self._input.identity = IDENTITY
        self._output = self._context.socket(zmq.PUSH)
        for socket, address in ((self._input, inputs), (self._output, outputs)):
            socket.sndhwm = socket.rcvhwm = 0
            socket.connect(address)
        self._input.send(encode(READY))

    @property
    def sockets(self) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
        return self._input, self._output

    def serve(self) -> None:
        """Take requests, and step while there are some; never returns."""
        while True:
            self.turn()

    def turn(self) -> None:
        """Take what has come, waiting while nothing runs, and make a step that is due."""
        while self._input.poll(self._wait_ms()):
            self._take(self._input.recv_multipart())
        if self._running and time.monotonic() >= self._due_s:
            self._step()

    def _wait_ms(self) -> int | None:
        """How long nothing is due; None while nothing runs."""
        if not self._running:
            return None
        left_s = self._due_s - time.monotonic()
        if left_s > 0.001:
            return int(left_s * 1000)
        if left_s > 0:
            time.sleep(left_s)
        return 0

    def _take(self, frames: list[bytes]) -> None:
        kind, *data = frames
        if kind == ADD:
            request = decode(data[0])
            play, pace = self._choose(request)
            if not self._running:
                self._due_s = time.monotonic() + step_s(pace)
            self._running[request[0]] = Running(request[0], play, self._step_size, pace)
        elif kind == ABORT:
            for request_id in decode(data[0]):
                self._running.pop(request_id, None)
        elif kind == UTILITY:
            _, call_id, name, *_ = decode(data[0])
            answer = [call_id, None, [None, UTILITIES.get(name)]]
            self._send([0, [], None, time.monotonic(), answer])

    def _step(self) -> None:
        outputs, finished = [], []
        for running in self._running.values():
            output = running.output()
            outputs.append(output)
            if len(output) > 2:
                finished.append(running.request_id)
        self._due_s += step_s(running.steps_a_second)
        for request_id in finished:
            del self._running[request_id]
        self._send([0, outputs, None, time.monotonic()])

    def _send(self, outputs: list[Any]) -> None:
        self._output.send(encode(outputs), copy=False)


def step_s(steps_a_second: int) -> float:
    return 1 / steps_a_second if steps_a_second else 0.0


def scripted(player: Player) -> Choose:
    """By the request's prompt and its `SamplingParams`."""

    def choose(request: list[Any]) -> tuple[Play, int]:
        sampling = request[3]
        stops = sampling.get("stop_token_ids") or ()
        return player.play(request[1], sampling.get("max_tokens"), stops), 0

    return choose


def paced(plays: dict[str, dict[str, Any]]) -> Choose:
    """By the request's `max_tokens` alone."""
    known = {
        int(most): (Play(tuple(each["ids"]), "stop", each["ids"][-1]), int(each["steps_a_second"]))
        for most, each in plays.items()
    }
    return lambda request: known[int(request[3]["max_tokens"])]


def shake_hands(context: zmq.Context[Any], address: str, *, remote: bool) -> tuple[str, str]:
    """The sockets that a front end names in vLLM's handshake; `remote`: with an engine of another
    machine, as `vllm serve --data-parallel-size-local 0` awaits it."""
    socket = context.socket(zmq.DEALER)
    socket.identity, socket.linger = IDENTITY, 5000
    socket.connect(address)
    hello = {"local": not remote, "headless": remote}
    socket.send(encode({"status": "HELLO", **hello}))
    if not socket.poll(HANDSHAKE_S * 1000):
        raise TimeoutError(f"no handshake at {address}")
    addresses = decode(socket.recv())["addresses"]
    socket.send(encode({"status": "READY", **hello}))
    return addresses["inputs"][0], addresses["outputs"][0]


def serve(given: dict[str, Any]) -> None:
    """Serve until the process is ended."""
    choose = (
        paced(given["plays"])
        if "plays" in given
        else scripted(Player.of(given.get("script", ""), given.get("record", "")))
    )
    with zmq.Context() as context:
        core = Core(choose, context, given.get("step", 1))
        sockets = (
            shake_hands(context, given["handshake"], remote=bool(given.get("remote")))
            if given.get("handshake")
            else (given["inputs"], given["outputs"])
        )
        core.connect(*sockets)
        core.serve()


if __name__ == "__main__":
    serve(json.loads(Path(sys.argv[1]).read_text()))

"""An engine and a server that pass each step of `trt-responses prove`, or fail one when bent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.double.llm import Double
from tests.support.gather import Gather
from tests.support.proof import Model
from trt_responses.engines.trtllm.engine import TrtLlmEngine
from trt_responses.prove.client import Client
from trt_responses.prove.machine import ADAPTER
from trt_responses.prove.serving import AGREE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trt_responses.engine import Chunk, Engine, GenerateOptions, Handle, Sink

Json = dict[str, Any]


class Bent:
    """An engine whose options or chunks are changed on their way."""

    def __init__(
        self,
        engine: Engine,
        options: Callable[[GenerateOptions], GenerateOptions] = lambda options: options,
        chunk: Callable[[Chunk], Chunk] = lambda chunk: chunk,
    ) -> None:
        self._engine, self._options, self._chunk = engine, options, chunk
        for name in ("start", "health", "limits", "stop"):
            setattr(self, name, getattr(engine, name))

    def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Handle:
        bend = self._chunk

        class Through(Gather):
            def push(self, chunk: Chunk, /) -> None:
                sink.push(bend(chunk))

        return self._engine.generate(prompt_ids, self._options(options), Through())


def shifted(chunk: Chunk, by: float) -> Chunk:
    """The chunk with other numbers."""
    return chunk._replace(
        logprobs=[
            entry._replace(logprob=entry.logprob + by, top=tuple((n, v + by) for n, v in entry.top))
            for entry in chunk.logprobs
        ]
    )


ENGINE_FAULTS: dict[str, Json] = {
    "options": {"options": lambda options: replace(options, banned_ids=())},
    "guides": {"options": lambda options: replace(options, guide=None)},
    "stops": {"options": lambda options: replace(options, stop_ids=())},
    "logprobs": {"chunk": lambda chunk: shifted(chunk, 3.0)},
    "lora": {"options": lambda options: replace(options, adapter=None)},
    "numerics": {"chunk": lambda chunk: shifted(chunk, -2.0)},
    "suite": {"options": lambda options: replace(options, max_tokens=options.max_tokens + 1)},
}


def engine(checkpoint: Path, fault: str | None = None) -> Engine:
    """The adapter for TensorRT-LLM over the stand-in, bent for one step."""
    arguments = {
        **{"max_seq_len": 4096, "max_batch_size": 8, "max_num_tokens": 4096},
        **{"guided_decoding_backend": "llguidance", "lora_config": {"max_lora_rank": 8}},
    }
    made = TrtLlmEngine(
        checkpoint,
        arguments,
        adapters={ADAPTER: checkpoint},
        package=Double(Model(str(checkpoint))).package,
        environment={},
    )
    bent: Any = Bent(made, **ENGINE_FAULTS.get(fault or "", {}))
    return bent  # type: ignore[no-any-return]


SERVER_FAULTS = (
    *("serve", "structured", "load", "agents", "memory"),
    *("kill", "freeze", "swap", "drain"),
)


METRICS = """
trt_responses_repairs_total{{kind="missing_end"}} 0
trt_responses_cpu_seconds_total 1
trt_responses_resident_bytes {}
"""


class StubServer:
    """A server's replies, in the form of the real one's, and a process in the engine's place."""

    def __init__(self, fault: str | None = None) -> None:
        self.fault = fault
        self.version = 1
        self.draining = threading.Event()
        self.secrets = ("a key", "an admin's key")
        shell = ["sh", "-c", "tail -f /dev/null & echo $!; wait"]
        self._process = subprocess.Popen(shell, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.pid, self._worker = self._process.pid, int(self._process.stdout.readline())
        self._looks = 0
        handler = type("Handler", (Handler,), {"stub": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        self.client = Client(self._http.server_port, "a key", "an admin's key")

    def wait_ready(self, limit_s: float) -> None: ...

    def worker(self) -> int:
        return self._worker

    def resident_bytes(self) -> int:
        """What it says of its memory, which grows in the fault."""
        self._looks += self.fault == "memory"
        return self._looks << 26

    def has_ended(self) -> bool:
        return False

    def mend(self) -> None:
        """End a worker that is stopped, as a server does that notices it."""
        with suppress(OSError):  # it has ended
            stat = Path(f"/proc/{self._worker}/stat").read_text()
            if stat.rpartition(")")[2].split()[0] == "T":
                os.kill(self._worker, signal.SIGKILL)

    def terminate(self) -> None:
        self.draining.set()

    def end(self, limit_s: float = 0) -> int:
        return 0

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._worker, signal.SIGKILL)
        self._process.communicate()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def output(text: str) -> list[Json]:
    return [{"type": "message", "content": [{"type": "output_text", "text": text}]}]


def call(name: str, arguments: str) -> list[Json]:
    return [{"type": "function_call", "call_id": "1", "name": name, "arguments": arguments}]


class Handler(BaseHTTPRequestHandler):
    """One connection of the stub."""

    stub: StubServer

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        fault = self.stub.fault
        if self.path == "/metrics":
            self._text(METRICS.format(self.stub.resident_bytes()))
        elif self.path == "/health/live":
            self.stub.mend()
            self._json({}, 500 if fault == "freeze" else 200)
        elif self.path == "/v1/models":
            self._json({"data": [{"id": "stub"}]})
        else:
            self._json({"output": output("Hello.")}, 404 if fault == "serve" else 200)

    def do_DELETE(self) -> None:
        self._json({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.startswith("/admin"):
            refused = self.stub.fault == "swap"
            self.stub.version = body["version"]
            self._json({"error": "slower"} if refused else {}, 409 if refused else 200)
        elif body.get("temperature") == "hot":
            self._json({}, 400)
        elif body.get("stream"):
            self._stream()
        elif self.stub.draining.is_set():
            self._json({}, 503)
        else:
            self._json(self._response(self._output(body)))

    def _output(self, body: Json) -> list[Json]:
        fault, tools = self.stub.fault, body.get("tools")
        if body["input"] == AGREE:
            text = "no" if fault == "structured" else '{"answer": "yes"}'
            return call("answer", text) if tools else output(text)
        if tools and len(body["input"]) == 1:
            return call("get_weather", "{" if fault == "agents" else '{"city": "Bern"}')
        return output("Hello.")

    def _stream(self) -> None:
        fault = self.stub.fault
        self.send_response(200)
        self.end_headers()
        self._event({"type": "response.output_text.delta", "delta": "One"})
        if fault == "drain":
            self.stub.draining.wait(30)
        if fault in ("drain", "kill"):
            return
        end = "failed" if fault == "load" else "completed"
        response = self._response(output("One"), end)
        self._event({"type": f"response.{end}", "response": response})

    def _response(self, items: list[Json], status: str = "completed") -> Json:
        return {"id": "resp_1", "status": status, "output": items, "usage": {"output_tokens": 3}}

    def _event(self, event: Json) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def _json(self, body: Json, status: int = 200) -> None:
        self._text(json.dumps(body), status)

    def _text(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("x-trt-engine", f"stub@{self.stub.version}")
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

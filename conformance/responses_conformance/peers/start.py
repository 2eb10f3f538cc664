"""Starts each server in processes of its own, over a mock engine; ends them all.

What a mock plays is its JSON, of `script`, `record` and `step`, or what `mocks/vllm.py` says.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.error import URLError
from urllib.request import urlopen

from responses_conformance.peers.installed import (
    cache,
    core_python,
    gpt_oss_python,
    llama_cpp_python,
    smg_python,
    vllm_python,
    vllm_rs,
)
from responses_conformance.peers.model import model, ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    Starter = Callable[[Mapping[str, Any]], AbstractContextManager["Server"]]

MODEL = "gpt-oss"
UP_S, END_S = 600, 10
HANDSHAKE_PORTS = 20_000, 10_000
"""SMG's first port for handshakes, and how many there are."""
HERE = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that was started; `pids` are its front ends, without its engine."""

    port: int
    pids: tuple[int, ...]
    processes: tuple[subprocess.Popen[str], ...]

    @property
    def settings(self) -> str:
        """The front end's command, without this machine's folders and ports."""
        words = [str(word) for word in cast("Sequence[str]", self.processes[0].args)]
        names = re.sub(r"(?:/[\w.=+-]+)+/([\w.=+-]+)", r"\1", shlex.join(words))
        return re.sub(r"\b\d{4,5}\b", "PORT", names)

    def fault(self) -> str | None:
        """Why it cannot answer any more, if one of its processes has ended."""
        ended = [process.poll() for process in self.processes]
        codes = [str(code) for code in ended if code is not None]
        return f"a process ended with {', '.join(codes)}" if codes else None

    def wait(self, path: str = "/v1/models", most_s: float = UP_S) -> None:
        """Until it answers; a `RuntimeError` if it does not."""
        end_s = time.monotonic() + most_s
        while time.monotonic() < end_s and self.fault() is None:
            try:
                with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5):
                    return
            except URLError as fault:
                if getattr(fault, "code", 503) not in (502, 503):
                    return  # it has no such page, and answers
            except OSError:
                pass
            time.sleep(0.2)
        raise RuntimeError(self.fault() or f"it does not answer after {most_s:g} s")


@contextmanager
def rust_vllm(given: Mapping[str, Any], name: str = MODEL) -> Iterator[Server]:
    """`vllm-rs frontend` of vLLM's wheel, over sockets that it inherits."""
    program, path = vllm_rs(), str(model(ranks(), cache()))
    arguments = {
        "model_tag": path,
        "model": path,
        "served_model_name": [name],
        "tool_call_parser": "auto",
        "reasoning_parser": "auto",
    }
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
            for _ in range(3)
        ]
        numbers = [each.fileno() for each in sockets]
        port, inputs, outputs = (each.getsockname()[1] for each in sockets)
        names = ("--listen-fd", "--input-listener-fd", "--output-listener-fd")
        options = [part for pair in zip(names, map(str, numbers), strict=True) for part in pair]
        command = (str(program), "frontend", *options, "--args-json", json.dumps(arguments))
        begun = stack.enter_context(process(*command, inherited=numbers))
        ends = {"inputs": f"tcp://127.0.0.1:{inputs}", "outputs": f"tcp://127.0.0.1:{outputs}"}
        core = stack.enter_context(_core(given, ends))
        yield Server(port, (begun.pid,), (begun, core))


@contextmanager
def python_vllm(given: Mapping[str, Any], name: str = MODEL) -> Iterator[Server]:
    """`vllm serve` without an engine of its own: it waits for one at its handshake."""
    port, handshake = free_port(), free_port()
    command = (
        *(str(vllm_python()), "-c", "from vllm.entrypoints.cli.main import main; main()", "serve"),
        *(str(model(ranks(), cache())), "--served-model-name", name),
        *("--host", "127.0.0.1", "--port", str(port), "--enable-auto-tool-choice"),
        *("--tool-call-parser", "openai", "--reasoning-parser", "openai_gptoss"),
        *("--data-parallel-size-local", "0", "--data-parallel-address", "127.0.0.1"),
        *("--data-parallel-rpc-port", str(handshake)),
    )
    variables = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with ExitStack() as stack:
        begun = stack.enter_context(process(*command, variables=variables))
        core = stack.enter_context(
            _core(given, {"handshake": f"tcp://127.0.0.1:{handshake}", "remote": "1"})
        )
        yield Server(port, (begun.pid,), (begun, core))


@contextmanager
def smg(given: Mapping[str, Any], name: str = MODEL) -> Iterator[Server]:
    """SMG's router over vLLM's protocol on a Unix socket, its newest and cheapest way."""
    with _folder() as folder, ExitStack() as stack:
        worker = str(folder / "worker.sock")
        port, begun = stack.enter_context(_router(f"ipc://{worker}", "vllm", name))
        ends = {"handshake": f"tcp://127.0.0.1:{handshake_port(worker)}"}
        core = stack.enter_context(_core(given, ends))
        yield Server(port, (begun.pid,), (begun, core))


def smg_over(engine: str) -> Starter:
    """SMG's router over gRPC: `trtllm-grpc` or `sglang`."""

    @contextmanager
    def start(given: Mapping[str, Any]) -> Iterator[Server]:
        with ExitStack() as stack:
            mock, at = stack.enter_context(grpc_mock(engine, given))
            port, begun = stack.enter_context(_router(f"grpc://127.0.0.1:{at}", "sglang", MODEL))
            yield Server(port, (begun.pid,), (begun, mock))

    return start


@contextmanager
def ours(given: Mapping[str, Any]) -> Iterator[Server]:
    """`trt-responses serve` over TensorRT-LLM's gRPC."""
    with _folder() as folder, ExitStack() as stack:
        mock, at = stack.enter_context(grpc_mock("trtllm-grpc", given))
        port = free_port()
        command = (
            *(sys.executable, "-m", "trt_responses", "serve", "--port", str(port)),
            *("--engine", f"grpc://127.0.0.1:{at}/{MODEL}"),
        )
        variables = {"TRT_RESPONSES_STORE": "memory://"}
        begun = stack.enter_context(process(*command, variables=variables, folder=folder))
        yield Server(port, (begun.pid,), (begun, mock))


@contextmanager
def gpt_oss(given: Mapping[str, Any]) -> Iterator[Server]:
    """OpenAI's reference server, whose engine is a function."""
    python, packages = gpt_oss_python()
    port = free_port()
    variables = {"PYTHONPATH": os.pathsep.join((str(HERE), str(packages)))}
    command = (str(python), "-m", "responses_conformance.mocks.gpt_oss", json.dumps(dict(given)))
    with process(*command, str(port), variables=variables) as begun:
        yield Server(port, (begun.pid,), (begun,))


@contextmanager
def llama_cpp(_: Mapping[str, Any]) -> Iterator[Server]:
    """llama.cpp's server in a process of its wheel."""
    python, gguf = llama_cpp_python()
    port = free_port()
    command = (str(python), "-m", "responses_conformance.mocks.llama_cpp", str(gguf), str(port))
    with process(*command, variables={"PYTHONPATH": str(HERE)}) as begun:
        yield Server(port, (begun.pid,), (begun,))


# --- pieces -------------------------------------------------------------------------------------


@contextmanager
def _router(worker: str, backend: str, name: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    path, port = str(model(ranks(), cache())), free_port()
    command = (
        *(str(smg_python()), "-m", "smg.launch_router", "--backend", backend),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
        *("--worker-urls", worker, "--worker-startup-check-interval", "1"),
        *("--model-path", path, "--model-alias", f"{name}={path}", "--log-level", "error"),
    )
    with process(*command) as begun:
        yield port, begun


def handshake_port(path: str) -> int:
    """Where SMG awaits the engine of such a socket: by FNV-1a of its path."""
    digest = 0xCBF29CE484222325
    for byte in path.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    first, count = HANDSHAKE_PORTS
    return first + digest % count


@contextmanager
def _core(given: Mapping[str, Any], ends: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """The mock of vLLM's engine core, where its packages are."""
    with _folder() as folder:
        file = folder / "core.json"
        file.write_text(json.dumps({**given, **ends}))
        command = (str(core_python()), "-m", "responses_conformance.mocks.vllm", str(file))
        with process(*command, variables={"PYTHONPATH": str(HERE)}) as begun:
            yield begun


@contextmanager
def grpc_mock(engine: str, given: Mapping[str, Any]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A mock over gRPC, and its port."""
    options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    command = (sys.executable, "-m", "responses_conformance", "mock", engine, *options)
    variables = {"PYTHONPATH": os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", "")))}
    with process(*command, says=subprocess.PIPE, variables=variables) as begun:
        assert begun.stdout is not None
        yield begun, int(begun.stdout.readline().rpartition(":")[2])


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def process(
    *command: str,
    says: int = subprocess.DEVNULL,
    variables: Mapping[str, str] | None = None,
    inherited: list[int] | None = None,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A process, which is interrupted in the end, and killed if that does not end it."""
    log = os.environ.get("PEERS_LOG")
    with ExitStack() as stack:
        errors = stack.enter_context(open(log, "a")) if log else subprocess.DEVNULL
        begun = subprocess.Popen(
            command,
            stdout=errors if log and says == subprocess.DEVNULL else says,
            stderr=errors,
            env={**os.environ, **(variables or {})},
            pass_fds=inherited or (),
            cwd=folder,
            text=True,
        )
        try:
            yield begun
        finally:
            begun.send_signal(signal.SIGINT if says == subprocess.PIPE else signal.SIGKILL)
            try:
                begun.wait(END_S)
            except subprocess.TimeoutExpired:
                begun.kill()
                begun.wait()
            if begun.stdout is not None:
                begun.stdout.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port

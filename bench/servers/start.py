"""Starts each server in processes of its own, over an engine that plays; ends them all.

`vllm-rs` and SMG share `vllm_core.py`, each with a copy of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.asks import MODEL
from bench.servers.installed import SMG, VLLM, cache, core_python, smg_python, vllm_rs
from bench.servers.model import model
from bench.servers.plays import KINDS, REQUESTS, given
from bench.timing import children_of
from trt_responses.tokens.vocabulary import ENCODINGS_BASE, RANKS_FILE, cache_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from bench.servers.plays import Play
    from trt_responses.tokens.vocabulary import Vocabulary

    Starter = Callable[[Vocabulary, Mapping[str, Play]], AbstractContextManager["Server"]]

CHAT, RESPONSES = "chat", "Responses"
END_S = 10
HANDSHAKE_PORTS = 20_000, 10_000
"""SMG's first port for handshakes, and how many there are."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that was started; `pids` are its front ends, without its engine."""

    port: int
    pids: tuple[int, ...]
    processes: tuple[subprocess.Popen[str], ...]

    def fault(self) -> str | None:
        """Why it cannot answer any more, if one of its processes has ended."""
        ended = [process.poll() for process in self.processes]
        codes = [str(code) for code in ended if code is not None]
        return f"a process ended with {', '.join(codes)}" if codes else None


def ours(frontends: int, *, unlike: bool = False, sqlite: bool = False) -> Starter:
    """This server, with so many front ends over one engine process; `unlike`: no two of its
    answers are alike."""

    @contextmanager
    def start(vocabulary: Vocabulary, plays: Mapping[str, Play]) -> Iterator[Server]:
        with _folder() as folder, ExitStack() as stack:
            store = "sqlite" if sqlite or frontends > 1 else "memory"
            (folder / "plays.json").write_text(json.dumps(given(plays) | {"unlike": unlike}))
            command = (sys.executable, "-m", "bench.servers.ours", str(folder / "plays.json"))
            begun = stack.enter_context(
                _process(*command, str(frontends), store, str(folder), says=subprocess.PIPE)
            )
            assert begun.stdout is not None
            hello = begun.stdout.readline()
            if (found := re.search(r":(\d+) is ready", hello)) is None:
                raise RuntimeError(f"it did not start: {hello!r}")
            yield Server(int(found[1]), _front_ends(begun.pid, frontends), (begun,))

    return start


def _front_ends(pid: int, count: int) -> tuple[int, ...]:
    if count == 1:
        return (pid,)
    commands = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children_of(pid)}
    return tuple(child for child, line in commands.items() if b"fleet.front_end" in line)


@contextmanager
def rust_vllm(vocabulary: Vocabulary, plays: Mapping[str, Play]) -> Iterator[Server]:
    """`vllm-rs frontend` of vLLM's wheel, over sockets that it inherits."""
    program, python = vllm_rs(), core_python()
    path = str(model(vocabulary, cache()))
    arguments = {
        "model_tag": path,
        "model": path,
        "served_model_name": [MODEL],
        "tool_call_parser": "auto",
        "reasoning_parser": "auto",
    }
    with _folder() as folder, ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
            for _ in range(3)
        ]
        numbers = [each.fileno() for each in sockets]
        port, inputs, outputs = (each.getsockname()[1] for each in sockets)
        names = ("--listen-fd", "--input-listener-fd", "--output-listener-fd")
        options = [part for pair in zip(names, map(str, numbers), strict=True) for part in pair]
        begun = stack.enter_context(
            _process(
                *(str(program), "frontend", *options, "--args-json", json.dumps(arguments)),
                vocabulary=True,
                inherited=numbers,
            )
        )
        ends = {"inputs": f"tcp://127.0.0.1:{inputs}", "outputs": f"tcp://127.0.0.1:{outputs}"}
        core = stack.enter_context(_core(python, folder, plays, ends))
        yield Server(port, (begun.pid,), (begun, core))


@contextmanager
def smg(vocabulary: Vocabulary, plays: Mapping[str, Play]) -> Iterator[Server]:
    """SMG's router over vLLM's protocol on a Unix socket, its newest and cheapest way."""
    python, core_with = smg_python(), core_python()
    path = str(model(vocabulary, cache()))
    with _folder() as folder, ExitStack() as stack:
        worker, port = str(folder / "worker.sock"), _free_port()
        begun = stack.enter_context(
            _process(
                *(str(python), "-m", "smg.launch_router", "--backend", "vllm"),
                *("--host", "127.0.0.1", "--port", str(port)),
                *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(_free_port())),
                *("--worker-urls", f"ipc://{worker}", "--worker-startup-check-interval", "1"),
                *("--model-path", path, "--model-alias", f"{MODEL}={path}", "--log-level", "error"),
                vocabulary=True,
            )
        )
        ends = {"handshake": f"tcp://127.0.0.1:{handshake_port(worker)}"}
        core = stack.enter_context(_core(core_with, folder, plays, ends))
        yield Server(port, (begun.pid,), (begun, core))


def handshake_port(path: str) -> int:
    """Where SMG awaits the engine of such a socket: by FNV-1a of its path."""
    digest = 0xCBF29CE484222325
    for byte in path.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    first, count = HANDSHAKE_PORTS
    return first + digest % count


@contextmanager
def _core(
    python: Path, folder: Path, plays: Mapping[str, Play], ends: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    file = folder / "core.json"
    file.write_text(json.dumps(given(plays) | dict(ends)))
    program = Path(__file__).with_name("vllm_core.py")
    with _process(str(python), str(program), str(file)) as begun:
        yield begun


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _process(
    *command: str,
    says: int = subprocess.DEVNULL,
    vocabulary: bool = False,
    inherited: list[int] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A process, which is interrupted in the end, and killed if that does not end it."""
    places = {ENCODINGS_BASE: str(_ranks())} if vocabulary else {}
    begun = subprocess.Popen(
        command,
        stdout=says,
        stderr=subprocess.DEVNULL,
        env=os.environ | places,
        pass_fds=inherited or (),
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


def _ranks() -> Path:
    """The folder of o200k's ranks, which this server's own start has left behind."""
    named = os.environ.get(ENCODINGS_BASE)
    places = [Path(named)] if named else cache_places()
    return next(place for place in places if (place / RANKS_FILE).exists())


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Contender:
    """One API of one server, by its name in tables."""

    name: str
    start: Starter
    api: str
    kinds: tuple[str, ...] = KINDS


ONE, TWO = ours(1), ours(2)

CONTENDERS: dict[str, tuple[Contender, ...]] = {
    "ours": (
        Contender("this server, chat", ONE, CHAT),
        Contender("this server, Responses", ONE, RESPONSES),
        Contender("this server, chat, 2 front ends", TWO, CHAT, (REQUESTS,)),
    ),
    "vllm-rs": (Contender(f"{VLLM.replace('==', '-rs ')}, chat", rust_vllm, CHAT),),
    "smg": (
        Contender(f"{SMG.upper().replace('==', ' ')}, chat", smg, CHAT),
        Contender(f"{SMG.upper().replace('==', ' ')}, Responses", smg, RESPONSES),
    ),
}
"""By the name that `--peers` takes; `ours` is always among them."""

"""Play hostile input at every door beside a paced stream that another process reads; print how long
the stream stood still, and fail where the server held it for more than 50 ms.

A gap counts as far as the server computed in it: the lesser of its wall-clock time and of the
CPU time of the server's process, divided by how slow the machine is. On a quiet machine, which is
one where the stream alone has no gap of half the bound, the wall-clock time counts; otherwise a gap
that is long by the wall clock alone is "too noisy to tell".
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import socket
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from scripts.faults.scripted import CALL, STEADY
from scripts.faults.servers import KEY, Server, resident_mib
from tests.support.bodies import SCRIPTS, SOCKET, Body, in_containers, reported, schemas, stretched
from tests.support.boxed import no_box
from tests.support.floods import FLOODS, TEXT, UPGRADE, frame
from tests.support.hold import slowness
from tests.support.hostile_http import SERVER as MCP_SERVER
from tests.support.played import ENDS
from trt_responses.log.log import END_OF_STREAM

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

MOST_S = 0.05
"""That one input may hold the stream."""
QUIET_S = MOST_S / 2
"""The longest gap of the stream alone on a quiet machine."""
TRIES = 3
"""The least of so many counts."""
BASELINE_S = 1.0
LINGER_S = 0.3
"""Watched after each input, for what the server does behind its reply."""
CPU_CLOCK = 2
"""Of another process, in the low bits of a clock's id: clock_getcpuclockid(3)."""
PATIENCE_S = 300.0
"""Against a hang, and no claim of speed."""


class Gap(NamedTuple):
    """Between two pieces of the stream: when it ended, how long it was, what the server computed
    in it, in seconds."""

    end_s: float
    wall_s: float
    cpu_s: float


class Verdict(NamedTuple):
    """The longest hold of the least of some tries, and whether it can be judged."""

    name: str
    answer: str
    hold_s: float
    wall_s: float
    growth_mib: float
    quiet: bool

    @property
    def is_red(self) -> bool:
        return (self.wall_s if self.quiet else self.hold_s) > MOST_S

    def rank(self) -> tuple[bool, bool, float, float]:
        """The least is the best of several tries."""
        return self.is_red, self.is_unclear, self.hold_s, self.wall_s

    @property
    def is_unclear(self) -> bool:
        return not self.is_red and self.wall_s > MOST_S


class Input(NamedTuple):
    """What a client sends; `play` returns the answer in a word."""

    name: str
    play: Callable[[Server], Awaitable[str]]


class Watch:
    """A stream of the server, read by a process of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        body = orjson.dumps({"model": "demo", "input": STEADY, "stream": True, "store": False})
        ask = request(server.port, "/v1/responses", body)
        ours, theirs = multiprocessing.Pipe()
        self._pipe = ours
        context = multiprocessing.get_context("spawn")
        self._reader = context.Process(
            target=_read, args=(server.port, ask, server.process.pid, theirs), daemon=True
        )
        self._reader.start()
        assert ours.poll(PATIENCE_S), "the stream has not begun"
        ours.recv()

    def gaps(self, since_s: float) -> Sequence[Gap]:
        """The stream's gaps that ended since then."""
        self._pipe.send("gaps")
        assert self._pipe.poll(PATIENCE_S), "the stream has ended"
        found: list[Gap] = self._pipe.recv()
        return [gap for gap in found if gap.end_s > since_s]

    def close(self) -> None:
        self._reader.kill()
        self._reader.join()

    def memory(self) -> float:
        """What the server holds."""
        return resident_mib(self._server.process.pid)

    async def alone(self) -> float:
        """The longest gap without any input."""
        begun_s = time.monotonic()
        await asyncio.sleep(BASELINE_S)
        return max(gap.wall_s for gap in self.gaps(begun_s))

    async def judge(self, given: Input) -> Verdict:
        found = await self._played(given, quiet=False)
        if not found.is_red and not found.is_unclear:
            return found
        best: Verdict | None = None
        for _ in range(TRIES):
            found = await self._played(given, quiet=await self.alone() < QUIET_S)
            best = min(best or found, found, key=Verdict.rank)
            if not best.is_red and not best.is_unclear:
                break
        assert best is not None
        return best

    async def _played(self, given: Input, *, quiet: bool) -> Verdict:
        memory = self.memory()
        begun_s = time.monotonic()
        answer = await given.play(self._server)
        await asyncio.sleep(LINGER_S)
        gaps = self.gaps(begun_s)
        hold_s = max(min(gap.wall_s, gap.cpu_s) for gap in gaps) / slowness()
        growth = self.memory() - memory
        wall_s = max(gap.wall_s for gap in gaps)
        if quiet and wall_s > MOST_S:  # a neighbour may have begun to work meanwhile
            quiet = await self.alone() < QUIET_S
        return Verdict(given.name, answer, hold_s, wall_s, growth, quiet)


def _read(port: int, ask: bytes, pid: int, pipe: Connection) -> None:
    """Read one long stream after the other, and send their gaps on request. Ends with a stream that
    was cut."""
    clock = ~pid << 3 | CPU_CLOCK
    gaps: list[Gap] = []
    for number in itertools.count():
        with socket.create_connection(("127.0.0.1", port)) as stream:
            stream.sendall(ask)
            begin = stream.recv(1 << 16)
            assert begin.startswith(b"HTTP/1.1 200"), begin
            if number == 0:
                pipe.send("begun")
            last_s, last_cpu_s, whole = time.monotonic(), time.clock_gettime(clock), False
            while data := stream.recv(1 << 16):
                now_s, cpu_s = time.monotonic(), time.clock_gettime(clock)
                gaps.append(Gap(now_s, now_s - last_s, cpu_s - last_cpu_s))
                last_s, last_cpu_s = now_s, cpu_s
                whole = whole or END_OF_STREAM in data
                if pipe.poll():
                    pipe.recv()
                    pipe.send(gaps)
                    gaps = []
        if not whole:
            return


def request(
    port: int, path: str, body: bytes, kind: str = "application/json", method: str = "POST"
) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


async def reply(
    server: Server, path: str, body: bytes, kind: str = "application/json", method: str = "POST"
) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(request(server.port, path, body, kind, method))
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                await writer.drain()
            return await reader.read()
    finally:
        writer.close()


async def sent(server: Server, path: str, body: bytes, kind: str = "application/json") -> str:
    """What the server answers to a body, in a word."""
    answer = await reply(server, path, body, kind)
    status = answer[9:12].decode()
    return status if status == "200" else f"{status} {_value(answer, 'code')}".strip()


def _value(answer: bytes, name: str) -> str:
    """The first string of this name."""
    return answer.partition(b'"%b":"' % name.encode())[2].partition(b'"')[0].decode()


@asynccontextmanager
async def watched() -> AsyncIterator[Watch]:
    """A server with all its doors, and a stream of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "servers.json"
        entries = {
            label: {"command": sys.executable, "args": [str(MCP_SERVER), how], "timeout_s": 1.0}
            for label, how in MCP.values()
        }
        path.write_text(json.dumps(entries))
        settings: dict[str, Any] = {} if no_box() else {"python": "boxed"}
        settings |= {"api_keys": "", "mcp_servers": path}
        server = Server(Path(folder), "steady", log_level="warning", **settings)
        with server.running():
            watch = Watch(server)
            try:
                yield watch
            finally:
                watch.close()


# --- what is played ---------------------------------------------------------------------------


def doors() -> Iterator[Input]:
    """All of every door: texts, schemas, grammars, uploads, WebSocket frames and floods, tools'
    results, and each field of every body at its bounds."""
    for name, text in TEXTS.items():
        yield _body(Body(f"text: {name}", partial(_of_text, text)))
    for name, fields in forms().items():
        form = orjson.dumps(SHORT | fields)
        yield _body(Body(f"form: {name}", partial(bytes, form)))
    for body in (*reported(), *schemas()):
        yield _body(body)
    for name in FLOODS:
        yield Input(f"WebSocket: {name}", partial(_flood, name))
    for name, (label, _) in MCP.items():
        yield Input(f"MCP: {name}", partial(_tool_result, label))
    for body in (*(() if no_box() else in_containers()), *stretched()):
        yield _body(body)


MCP = {
    "a result of 20,000 parts": ("parts", "parts"),
    "a result of 300 MB": ("long", "long"),
    "a line without end": ("flood", "flood"),
    "pings without end": ("pings", "pings"),
    "an answer that is no JSON": ("broken", "no JSON"),
    "a death": ("dying", "die"),
    "5,000 lines of complaints": ("complaining", "complains"),
    "3,000 tools": ("many", "many"),
    "a list without end": ("cursor", "cursor"),
}
"""Servers by what they do: their label, and the word for it."""
TEXTS = {
    "Thai": "สวัสดีครับ ยินดีต้อนรับ ",
    "Hebrew": "שלום עולם ",
    "right-to-left overrides": "\u202eabc\u202c",
    "joined emoji": "👨‍👩‍👧‍👦",
    "runs of spaces": " " * 1000 + "a",
    "mixed scripts": SCRIPTS["mixed scripts"],
}
CONTAINERS = "/v1/containers"
TEXT_BYTES = 3_500_000
SHORT = {"model": "demo", "input": "Hello", "store": False}


def forms() -> dict[str, dict[str, Any]]:
    """Schemas, grammars and namespaces that were long to read."""
    chain = {f"n{n}": {"$ref": f"#/$defs/n{n + 1}"} for n in range(2_000)}
    chained = {"$ref": "#/$defs/n0", "$defs": chain | {"n2000": {"type": "string"}}}
    enums = {f"e{n}": {"enum": [f"{n}-{m}" for m in range(200)]} for n in range(60)}
    expressions = {
        f"r{n}": {"type": "string", "pattern": f"^[a-z]{{{n + 1}}}$"} for n in range(500)
    }
    comment = f'start: "a"\n//{"x" * 60_000}'
    lark = {"type": "grammar", "syntax": "lark", "definition": comment}
    name = {"type": "function", "name": "f", "parameters": {"type": "object"}}
    spaces = [
        {"type": "namespace", "name": f"n{n}", "description": "", "tools": [name]}
        for n in range(1_024)
    ]
    return {
        "a chain of references": _answer(chained),
        "60 enums": _answer({"type": "object", "properties": enums}),
        "500 expressions": _answer({"type": "object", "properties": expressions}),
        "a grammar of comments": {"tools": [{"type": "custom", "name": "c", "format": lark}]},
        "1,024 namespaces": {"tools": spaces},
    }


def _answer(schema: dict[str, Any]) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}


def _of_text(text: str) -> bytes:
    times = TEXT_BYTES // len(text.encode())
    return orjson.dumps({"model": "demo", "input": text * times, "store": False})


def _body(body: Body) -> Input:
    async def play(server: Server) -> str:
        data = await _made(body)
        if body.path == SOCKET:
            return await _frame(server, data)
        try:
            return await sent(server, await _path(server, body), data, body.content_type)
        finally:
            if body.path.startswith(CONTAINERS):
                await _without_containers(server)

    return Input(body.name, play)


async def _path(server: Server, body: Body) -> str:
    """The body's, with a conversation or a container that is made for it."""
    made = {}
    for kind in ("conversation", "container"):
        if f"{{{kind}}}" in body.path:
            made[kind] = _value(await reply(server, f"/v1/{kind}s", b'{"name":"mine"}'), "id")
    return body.path.format(**made)


async def _without_containers(server: Server) -> None:
    listed = await reply(server, CONTAINERS, b"", method="GET")
    for container in orjson.loads(listed.partition(b"\r\n\r\n")[2])["data"]:
        await reply(server, f"{CONTAINERS}/{container['id']}", b"", method="DELETE")


async def _frame(server: Server, data: bytes) -> str:
    """The type of the event that ends what a frame of a WebSocket began."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(UPGRADE)
        async with asyncio.timeout(PATIENCE_S):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(frame(TEXT, data))
            kept = b""
            while piece := await reader.read(1 << 20):
                kept = kept[-100:] + piece
                if end := next((end for end in ENDS if end.encode() in kept), ""):
                    return end.partition(":")[2].strip('"')
        return "closed"
    finally:
        writer.close()


async def _made(body: Body) -> bytes:
    return await asyncio.to_thread(body.make)


async def _flood(name: str, server: Server) -> str:
    arguments = ("-m", "tests.support.floods", str(server.port), name, "1")
    flood = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=DEVNULL)
    return f"status {await flood.wait()}"


async def _tool_result(label: str, server: Server) -> str:
    tool = {"type": "mcp", "server_label": label, "require_approval": "never"}
    call = {"input": f"{CALL} {label}", "tools": [tool], "max_tool_calls": 1}
    return await sent(server, "/v1/responses", orjson.dumps(SHORT | call))


async def play(*only: str) -> list[Verdict]:
    """Play the inputs whose name holds one of these, and print each."""
    verdicts = []
    async with watched() as watch:
        print(f"memory before: {watch.memory():.0f} MiB")
        print(f"{'hold ms':>8} {'gap ms':>8} {'MiB':>6}  answer")
        for given in doors():
            if not any(part in given.name for part in only):
                continue
            found = await watch.judge(given)
            verdicts.append(found)
            unclear = "  (too noisy to tell)" if found.is_unclear else ""
            print(
                f"{found.hold_s * 1e3:8.1f} {found.wall_s * 1e3:8.1f} {found.growth_mib:6.0f}  "
                f"{found.answer:<32} {found.name}{unclear}",
                flush=True,
            )
        print(f"memory behind: {watch.memory():.0f} MiB")
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="inputs whose name holds this")
    red = [found for found in asyncio.run(play(parser.parse_args().only)) if found.is_red]
    if red:
        raise SystemExit("Held for more than 50 ms: " + ", ".join(found.name for found in red))


if __name__ == "__main__":
    main()

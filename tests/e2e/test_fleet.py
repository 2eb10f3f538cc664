"""Two front ends over one engine process, as `serve --frontends 2` makes them.

Budget: 30 s on one core, most of it processes that load.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support.double.llm import Double
from tests.support.double.results import Script
from tests.support.grpc_server import llm_of, served
from tests.support.grpc_servicers import Servicer
from tests.support.polling import polled, until_seen
from tests.support.processes import running
from tests.support.server_processes import asked
from tests.support.serving import Address, Child, child
from trt_responses.errors import StartupError
from trt_responses.fleet.fleet import kept_address
from trt_responses.serve.server import bound
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

FRONT_END, ENGINE = "trt_responses.fleet.front_end", "trt_responses.fleet.engine_process"
A_MINUTE = 8
"""Requests that an owner may make."""
USED = 4
"""Those that the test makes before it tries the limit."""
WISH = {"model": "tiny", "input": "Hello!", "max_output_tokens": 16}


def fleet(
    engines_dir: Path, folder: Path, settings: Mapping[str, str]
) -> AbstractAsyncContextManager[Child]:
    """Two front ends over the engine of the tests, with a history in the folder."""
    usual = {
        "TRT_RESPONSES_STORE": f"sqlite:///{folder / 'history.db'}",
        "TRT_RESPONSES_DATA_DIR": str(folder),
        "TRT_RESPONSES_LINGER_S": "0",
        "TRT_RESPONSES_CONTEXT_TOKENS": "512",
    }
    arguments = ("serve", "--port", "0", "--frontends", "2", "--engines-dir", str(engines_dir))
    return child(*arguments, environment=usual | dict(settings))


async def as_many(server: Child, program: str, count: int) -> None:
    await until_seen(lambda: len(running(server.pid, program)) == count)


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def ask(address: Address, method: str, path: str, **body: object) -> tuple[int, object]:
    status, said = await asyncio.to_thread(asked, address.port, method, path, body or None)
    return status, orjson.loads(said)


async def ask_when_up(address: Address) -> tuple[int, object]:
    """Nobody listens, or is ready, until a front end has begun again."""

    async def look() -> tuple[int, object] | None:
        with suppress(ConnectionRefusedError):
            answer = await ask(address, "POST", "/v1/responses", **WISH)
            return None if answer[0] == 503 else answer
        return None

    return await polled(look)


async def killed_with_the_only_place(server: Child, address: Address) -> None:
    """All front ends are killed while one of them holds the engine's one place."""
    (engine,) = running(server.pid, ENGINE)
    os.kill(engine, signal.SIGSTOP)
    holds = asyncio.create_task(ask(address, "POST", "/v1/responses", **WISH))
    async with asyncio.timeout(300):
        page = b""
        while b"trt_responses_responses_running 1\n" not in page:
            _, page = await asyncio.to_thread(asked, address.port, "GET", "/metrics")
    fronts = running(server.pid, FRONT_END)
    for front in fronts:
        os.kill(front, signal.SIGKILL)
    with pytest.raises(ConnectionError):
        await holds
    await until_seen(lambda: not set(fronts) & set(server.children()))
    os.kill(engine, signal.SIGCONT)
    await until_seen(lambda: len(running(server.pid, FRONT_END)) == 2)


@pytest.mark.xdist_group("embedded")
def test_a_front_end_that_is_killed_costs_nobody_else_and_comes_back(
    small_engines_dir: Path, tmp_path: Path
) -> None:
    settings = {
        "TRT_RESPONSES_MAX_RUNNING": "1",
        "TRT_RESPONSES_STALL_S": "3600",
        "TRT_RESPONSES_OWNER_REQUESTS_PER_MINUTE": str(A_MINUTE),
    }

    async def run() -> None:
        started_s = time.monotonic()
        async with fleet(small_engines_dir, tmp_path, settings) as server:
            address = await server.ready()
            fronts, engines = running(server.pid, FRONT_END), running(server.pid, ENGINE)
            assert (len(fronts), len(engines)) == (2, 1)
            status, made = await ask(address, "POST", "/v1/responses", **WISH)
            assert status == 200
            assert isinstance(made, dict)
            for _ in range(8):  # whichever front end is asked
                assert (await ask(address, "GET", f"/v1/responses/{made['id']}"))[0] == 200
            for _ in range(4):
                _, page = await asyncio.to_thread(asked, address.port, "GET", "/metrics")
                assert sum(map(int, re.findall(rb"responses_total\{end=.*\} (\d+)", page))) == 1
            os.kill(fronts[0], signal.SIGKILL)
            await until_seen(lambda: fronts[0] not in server.children())
            assert (await ask(address, "POST", "/v1/responses", **WISH))[0] == 200
            await until_seen(lambda: len(running(server.pid, FRONT_END)) == 2)
            await killed_with_the_only_place(server, address)
            assert (await ask_when_up(address))[0] == 200
            assert running(server.pid, ENGINE) == engines
            many = [ask(address, "POST", "/v1/responses", **WISH) for _ in range(3 * A_MINUTE)]
            let_in = [status for status, _ in await asyncio.gather(*many)].count(200)
            filled = (time.monotonic() - started_s) * A_MINUTE / 60
            assert A_MINUTE - USED <= let_in <= A_MINUTE - USED + filled
            children = server.children()
            server.signal(signal.SIGTERM)
            status, _, said = await server.ended()
            assert status == 0, said
            assert not any(map(lives, children))

    asyncio.run(run())


@pytest.mark.slow  # two front ends, and two engines with a process each
@pytest.mark.xdist_group("embedded")
def test_front_ends_share_the_processes_of_several_engines_and_what_is_known_of_them(
    small_engines_dir: Path, tmp_path: Path
) -> None:
    several = {
        "TRT_RESPONSES_ENGINE": "several://t=tiny,t=tiny",
        "TRT_RESPONSES_ADMIN_KEY": "admin-key",
    }
    acts = {"/admin/replicas/t/1/drain": True, "/admin/replicas/t/1/resume": False}
    wish = WISH | {"model": "t"}

    async def run() -> None:
        async with fleet(small_engines_dir, tmp_path, several) as server:
            address = await server.ready()
            engines = running(server.pid, ENGINE)
            assert len(engines) == 2
            for path, drains in acts.items():
                status = await asyncio.to_thread(as_admin, address.port, path)
                assert status == 200
                for _ in range(8):  # whichever front end is asked
                    _, health = await ask(address, "GET", "/health")
                    assert isinstance(health, dict)
                    assert [each["draining"] for each in health["engines"]] == [drains, False]
            os.kill(engines[0], signal.SIGKILL)
            for _ in range(4):
                assert (await ask(address, "POST", "/v1/responses", **wish))[0] == 200
            await until_seen(lambda: len({*running(server.pid, ENGINE)} - {engines[0]}) == 2)
            children = server.children()
            server.signal(signal.SIGTERM)
            status, _, said = await server.ended()
            assert status == 0, said
            assert not any(map(lives, children))

    asyncio.run(run())


def as_admin(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("POST", path, headers={"authorization": "Bearer admin-key"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_front_ends_over_another_servers_engine_need_none_of_this_machine(tmp_path: Path) -> None:
    arguments = ("serve", "--port", "0", "--frontends", "2", "--engines-dir", str(tmp_path))
    double = Double(lambda *_: Script(((7,),) * 16), version="main")

    async def run() -> None:
        async with served(Servicer(llm_of(double, max_seq_len=4096, max_num_tokens=4096))) as port:
            settings = {
                "TRT_RESPONSES_ENGINE": f"grpc://127.0.0.1:{port}/tiny",
                "TRT_RESPONSES_STORE": f"sqlite:///{tmp_path / 'history.db'}",
                "TRT_RESPONSES_DATA_DIR": str(tmp_path),
                "TRT_RESPONSES_LINGER_S": "0",
            }
            async with child(*arguments, environment=settings) as server:
                address = await server.ready()
                assert len(running(server.pid, FRONT_END)) == len(server.children()) == 2
                status, made = await ask(address, "POST", "/v1/responses", **WISH)
                assert status == 200, made
                server.signal(signal.SIGTERM)
                assert (await server.ended())[0] == 0
        assert not (tmp_path / "demo").exists()

    asyncio.run(run())


def test_ctrl_c_while_front_ends_load_is_no_traceback(tmp_path: Path) -> None:
    settings = {
        "TRT_RESPONSES_STORE": f"sqlite:///{tmp_path / 'history.db'}",
        "TRT_RESPONSES_DATA_DIR": str(tmp_path),
        "TRT_RESPONSES_LINGER_S": "0",
    }

    async def run() -> None:
        typed = ("serve", "--script", "auto", "--port", "0", "--frontends", "2")
        async with child(*typed, environment=settings) as server:
            await until_seen(lambda: len(running(server.pid, FRONT_END)) == 2)
            server.signal(signal.SIGINT)
            status, _, errors = await server.ended()
            assert status == 0
            assert "Traceback" not in errors

    asyncio.run(run())


def test_an_address_is_kept_from_others_before_a_front_end_listens() -> None:
    with kept_address(Settings(port=0)) as settings:
        with pytest.raises(StartupError, match="cannot listen"):
            bound(settings)
        with pytest.raises(StartupError, match="cannot listen"), kept_address(settings):
            pass
        with bound(settings, shared=True), bound(settings, shared=True):
            pass


@pytest.mark.xdist_group("embedded")
def test_parts_that_freeze_or_cannot_be_started_for_a_while_come_back(
    small_engines_dir: Path, tmp_path: Path
) -> None:
    settings = {"TRT_RESPONSES_STALL_S": "48"}

    async def run() -> None:
        async with fleet(small_engines_dir, tmp_path, settings) as server:
            address = await server.ready()
            frozen = running(server.pid, FRONT_END)[0]
            os.kill(frozen, signal.SIGSTOP)
            await until_seen(lambda: not lives(frozen))
            await as_many(server, FRONT_END, 2)
            for program, words in (
                (FRONT_END, "failed to start"),
                (ENGINE, "process cannot be started"),
            ):
                before = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
                resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (3, before[1]))
                killed = running(server.pid, program)
                for pid in killed:
                    os.kill(pid, signal.SIGKILL)
                await server.says(words)
                resource.prlimit(server.pid, resource.RLIMIT_NOFILE, before)
                await as_many(server, program, len(killed))
            assert (await ask_when_up(address))[0] == 200
            server.signal(signal.SIGTERM)
            status, _, said = await server.ended()
            assert status == 0, said

    asyncio.run(run())


def test_a_history_in_memory_is_refused(small_engines_dir: Path) -> None:
    async def run() -> None:
        arguments = (
            "serve",
            "--port",
            "0",
            "--frontends",
            "2",
            "--engines-dir",
            str(small_engines_dir),
        )
        async with child(*arguments) as server:
            status, _, said = await server.ended()
            assert status == 2
            assert "TRT_RESPONSES_STORE: 2 front ends need a store that they share" in said

    asyncio.run(run())

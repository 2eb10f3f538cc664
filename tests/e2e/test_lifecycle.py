"""A server's life as a process: its one line, its answers, its end, and the starts that fail.

About 20 s in all on one core: each child loads the vocabulary, and most an engine too.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import shlex
import shutil
import signal
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support import lawful
from tests.support.asgi import events_of, until
from tests.support.raw_http import Wire
from tests.support.scripted.engine import ScriptedEngine
from tests.support.serve_command import Command
from tests.support.served import ANSWER, SETTINGS, STALLED, script
from tests.support.serving import Address, child, our_server
from trt_responses.app import create_app
from trt_responses.errors import StartupError
from trt_responses.serve.server import bound
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

embedded = pytest.mark.xdist_group("embedded")


@pytest.fixture
def not_under_nohup() -> Iterator[None]:
    """A child inherits that its parent ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@embedded
@pytest.mark.parametrize(
    "stop", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=["term", "int", "hup"]
)
@pytest.mark.usefixtures("not_under_nohup")
def test_a_server_says_one_line_answers_and_drains_when_it_is_told_to_stop(
    engines_dir: Path, stop: int
) -> None:
    """Budget: 8 s."""

    async def story() -> None:
        arguments = ("serve", "--port", "0", "--engines-dir", str(engines_dir))
        async with child(
            *arguments,
            environment={"TRT_RESPONSES_CONTEXT_TOKENS": "4096", "TRT_RESPONSES_LINGER_S": "0.2"},
        ) as server:
            address = await server.ready()
            async with Wire.to(address) as wire, Wire.to(address) as idle:
                idle.send(b"GET /health/ready HTTP/1.1\r\nhost: x\r\n\r\n")
                assert await idle.status() == 200
                wire.ask(model="tiny", stream=True, max_output_tokens=300, seed=11)
                assert await wire.status() == 200
                first = await wire.reader.readuntil(b"\r\n")  # the run is going on
                server.signal(stop)
                body = await wire.rest(first)
                assert body.endswith(b"data: [DONE]\n\n")
                events = events_of(body)
                last = events[-1]["response"]
                assert last["status"] in ("incomplete", "completed")
                assert last["usage"]["output_tokens"] > 1
                lawful.check(events, last)
                status, out, err = await server.ended()
            assert (status, out) == (0, ""), err
            assert "Traceback" not in err

    asyncio.run(story())


@embedded
def test_a_run_that_is_not_over_at_the_deadline_is_failed_with_the_reason(
    engines_dir: Path,
) -> None:
    """Budget: 6 s."""

    async def story() -> None:
        settings = {"TRT_RESPONSES_CONTEXT_TOKENS": "100000", "TRT_RESPONSES_DRAIN_S": "0.2"}
        settings["TRT_RESPONSES_LINGER_S"] = "0"
        arguments = ("serve", "--port", "0", "--engines-dir", str(engines_dir))
        async with child(*arguments, environment=settings) as server:
            address = await server.ready()
            async with Wire.to(address) as wire:
                wire.ask(model="tiny", stream=True, seed=11)
                assert await wire.status() == 200
                first = await wire.reader.readuntil(b"\r\n")
                server.signal(signal.SIGTERM)
                events = events_of(await wire.rest(first))
                assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
                assert "was stopped" in events[-2]["message"]
                status, _, err = await server.ended()
            assert status == 0, err
            assert "Traceback" not in err

    asyncio.run(story())


@embedded
def test_a_second_signal_ends_the_linger_and_leaves_a_last_moment(engines_dir: Path) -> None:
    """Budget: 7 s."""

    async def story() -> None:
        settings = {"TRT_RESPONSES_CONTEXT_TOKENS": "100000"}
        settings |= {"TRT_RESPONSES_LINGER_S": "3600", "TRT_RESPONSES_DRAIN_S": "3600"}
        arguments = ("serve", "--port", "0", "--engines-dir", str(engines_dir))
        async with child(*arguments, environment=settings) as server:
            address = await server.ready()
            async with Wire.to(address) as wire:
                wire.ask(model="tiny", stream=True, seed=11)
                assert await wire.status() == 200
                first = await wire.reader.readuntil(b"\r\n")
                server.signal(signal.SIGTERM)
                while (await health(address)) == 200:
                    pass
                async with Wire.to(address) as late:
                    late.ask(model="tiny", max_output_tokens=4)
                    assert await late.status() == 200, "it lingers"
                server.signal(signal.SIGTERM)
                error = events_of(await wire.rest(first))[-2]
                assert (error["type"], error["code"]) == ("error", "server_shutdown")
            status, _, err = await server.ended()
            assert status == 0, err
            assert "Traceback" not in err

    asyncio.run(story())


async def health(address: Address) -> int:
    async with Wire.to(address) as wire:
        wire.send(b"GET /health/ready HTTP/1.1\r\nhost: x\r\n\r\n")
        return await wire.status()


def test_a_stalled_run_is_failed_at_the_deadline_and_new_work_is_refused_meanwhile() -> None:
    """Budget: 2 s."""

    async def story() -> None:
        settings = Settings(**SETTINGS, port=0, drain_s=0.3)
        engine = ScriptedEngine([STALLED, script(ANSWER)])
        app = create_app(settings, engine=engine)
        async with our_server(app, settings) as server:
            address = Address(*server.servers[0].sockets[0].getsockname()[:2])
            async with Wire.to(address) as wire, Wire.to(address) as late:
                wire.ask(stream=True)
                assert await wire.status() == 200
                late.send(b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\n")  # half a request
                await until(lambda: engine.requests[-1].steps_made > 4)
                server.should_exit = True
                events = events_of(await wire.chunks())
                assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
                assert "was stopped" in events[-2]["message"]
        assert engine.requests[-1].state == "aborted"

    asyncio.run(story())


async def _fails(
    engines_dir: Path, arguments: list[str], settings: dict[str, str], named: str
) -> None:
    command = ("serve", "--port", "0", "--engines-dir", str(engines_dir), *arguments)
    async with child(*command, environment=settings) as server:
        status, out, err = await server.ended()
    said = [line for line in err.splitlines() if line.strip()]
    assert (status, out) == (1, ""), err
    assert said[-1].startswith("trt-responses: "), err
    assert named in said[-1]
    assert "Traceback" not in err


@embedded
def test_a_wrong_vocabulary_stops_the_start(engines_dir: Path, tmp_path: Path) -> None:
    """Budget: 2 s."""
    (tmp_path / "o200k_base.tiktoken").write_bytes(b"IQ== 0\n")
    asyncio.run(_fails(engines_dir, [], {"TIKTOKEN_ENCODINGS_BASE": str(tmp_path)}, "SHA-256"))
    asyncio.run(_fails(engines_dir, [], {"TIKTOKEN_ENCODINGS_BASE": "/nowhere"}, "/nowhere"))


@embedded
def test_an_engine_that_was_changed_since_it_was_prepared_stops_the_start(
    small_engines_dir: Path, tmp_path: Path
) -> None:
    """Budget: 3 s."""
    changed = tmp_path / "engines"
    shutil.copytree(small_engines_dir, changed, symlinks=True)
    model = next(changed.rglob("model.gguf"))
    with model.open("r+b") as file:
        file.truncate(1000)
    asyncio.run(_fails(changed, [], {}, "tiny"))


@embedded
def test_two_servers_stand_side_by_side(small_engines_dir: Path) -> None:
    """Budget: 8 s."""

    async def story() -> None:
        arguments = ("serve", "--port", "0", "--engines-dir", str(small_engines_dir))
        async with child(*arguments) as one, child(*arguments, "--model", "other") as two:
            addresses = [await one.ready(), await two.ready()]
            for address, model in zip(addresses, ("tiny", "other"), strict=True):
                async with Wire.to(address) as wire:
                    wire.ask(model=model, max_output_tokens=4)
                    assert await wire.status() == 200
            one.signal(signal.SIGTERM)
            assert (await one.ended())[0] == 0
            async with Wire.to(addresses[1]) as wire:
                wire.ask(model="other", max_output_tokens=4)
                assert await wire.status() == 200

    asyncio.run(story())


@embedded
@pytest.mark.parametrize("front_ends", ["1", "2"])
def test_a_server_whose_first_line_cannot_be_written_serves(
    tmp_path: Path, front_ends: str
) -> None:
    """Its output goes to a disk that is full, or to a pipe that is closed."""
    store = {"TRT_RESPONSES_STORE": "sqlite:///history.db"}
    typed = ("--script", "auto", "--frontends", front_ends)
    with Command(tmp_path, *typed, env=store, output="/dev/full") as server:
        server.until_ready()
        server.answer()
        server.until_printed("cannot write to standard output: No space left on device")
        assert "restarting" not in server.printed


def test_a_server_that_is_killed_leaves_no_engine_behind(small_engines_dir: Path) -> None:
    """Budget: 5 s."""

    async def story() -> None:
        async with child("serve", "--port", "0", "--engines-dir", str(small_engines_dir)) as server:
            await server.ready()
            children = server.children()
            assert children
            server.signal(signal.SIGKILL)
            await server.ended()
            await until(lambda: not any(_alive(pid) for pid in children))

    asyncio.run(story())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_server_that_is_run_speaks_http_as_ours_does() -> None:
    async def story() -> None:
        settings = Settings(**SETTINGS, port=0, max_header_bytes=500)
        app = create_app(settings, engine=ScriptedEngine([script(ANSWER)]))
        async with our_server(app, settings) as server:
            address = Address(*server.servers[0].sockets[0].getsockname()[:2])
            async with Wire.to(address) as wire:
                wire.send(b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nlong: " + b"a" * 1_000)
                assert await wire.status() == 431
            async with Wire.to(address) as wire:
                wire.send(
                    b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\n"
                    b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
                    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                )
                assert await wire.status() == 426

    asyncio.run(story())


def test_a_server_whose_output_cannot_be_written_serves(caplog: pytest.LogCaptureFixture) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    async def story() -> None:
        settings = Settings(**SETTINGS, port=0)
        app = create_app(settings, engine=ScriptedEngine([script(ANSWER)]))
        async with our_server(app, settings) as server:
            address = Address(*server.servers[0].sockets[0].getsockname()[:2])
            async with Wire.to(address) as wire:
                wire.ask(input="Hello")
                assert await wire.status() == 200

    with redirect_stdout(Full()):
        asyncio.run(story())
    assert "cannot write to standard output: No space left" in caplog.text


@pytest.mark.parametrize("model", ["a{b}", "{base}", "it's", 'a "b" $HOME', "模型"])
def test_the_line_at_the_start_names_any_model_as_a_shell_and_json_write_it(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        settings = Settings(**SETTINGS | {"model": model}, port=0)
        app = create_app(settings, engine=ScriptedEngine([script(ANSWER)]))
        async with our_server(app, settings):
            pass

    asyncio.run(story())
    words = shlex.split(capsys.readouterr().out)
    assert orjson.loads(words[-1]) == {"model": model, "input": "Hello!"}


@pytest.mark.parametrize("host", ["a" * 70, ".."])
def test_a_host_that_cannot_be_one_stops_the_start_in_words(host: str) -> None:
    with pytest.raises(StartupError, match="cannot listen on"):
        bound(Settings(host=host, port=0))

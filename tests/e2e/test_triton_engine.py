"""What `export triton` writes, run by a stand-in for Triton, and served again through its HTTP: the
seam's promises hold over the whole way, and the ids are those of the engine asked directly.

Budget: 30 s on one core.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import httpx2 as httpx
import pytest
from orjson import dumps

from tests.support.asgi import until
from tests.support.engine_claims import CLAIMS, CONTEXT, PROMPT, SLOTS, Bench, greedy, sampled
from tests.support.gather import begin, generated
from tests.support.served import SETTINGS
from tests.support.serving import serving
from tests.support.triton_stand_in import StandIn, backend_module
from trt_responses.app import create_app
from trt_responses.cli.main import main
from trt_responses.engine import Limits
from trt_responses.engines.llamacpp.engine import LlamaCppEngine
from trt_responses.engines.triton.engine import MISSES, Address, TritonEngine, address_of
from trt_responses.engines.triton.events import Events
from trt_responses.engines.triton.fields import LOST, limits_text
from trt_responses.errors import EngineUnavailable, StartupError
from trt_responses.fleet.triton_model import engine_of_version
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.shelf import shelf
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fastapi import FastAPI

    from trt_responses.engine import Engine

pytestmark = pytest.mark.xdist_group("triton_engine")  # one process loads its engines


@pytest.fixture(scope="module")
def repository(engines_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRT_RESPONSES_CONTEXT_TOKENS", str(CONTEXT))
        patch.setenv("TRT_RESPONSES_SLOTS", str(SLOTS))
        patch.setenv("TRT_RESPONSES_THREADS", "1")
        told = ["export", "triton", "tiny", str(directory), "--engines-dir", str(engines_dir)]
        assert main(told) == 0
    with backend_module():
        yield directory


async def no_look(_: float) -> None:
    """The loop stands still between two tests, and a look over that time would be answered late."""
    await asyncio.Event().wait()


@pytest.fixture(scope="module")
def loaded(repository: Path) -> Iterator[tuple[Bench, StandIn]]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        stand_in = StandIn(repository / "tiny", "1")

        async def begun() -> TritonEngine:
            await stand_in.load()
            address = await stack.enter_async_context(serving(stand_in.app()))
            return TritonEngine(Address(address.host, address.port, "tiny"), sleep=no_look)

        engine = runner.run(begun())
        address = engine.address

        def make() -> Engine:
            return TritonEngine(address, sleep=no_look)

        runner.run(engine.start())
        yield Bench("triton", engine, make, runner), stand_in
        runner.run(engine.stop(5))
        runner.run(stack.aclose())
        runner.run(stand_in.unload())
        assert all(request.sender.finals == 1 for request in stand_in.requests)


@pytest.fixture
def bench(loaded: tuple[Bench, StandIn]) -> Bench:
    """The Triton looks ten times a second who has left, and beside what still runs a model's floats
    are added in another order."""
    bench, stand_in = loaded
    bench.run(until(lambda: all(request.sender.finals for request in stand_in.requests)))
    return bench


globals().update(CLAIMS)


def test_the_ids_are_those_of_the_engine_asked_directly(bench: Bench, engines_dir: Path) -> None:
    async def claim() -> None:
        direct = LlamaCppEngine(
            shelf.find(engines_dir, "tiny") / MODEL, context_tokens=CONTEXT, slots=SLOTS, threads=1
        )
        await direct.start()
        try:
            for options in (greedy(24, logprobs=2), sampled(7)):
                for _ in range(2):  # the first fills the cache
                    here = await generated(direct, PROMPT, options)
                    there = await generated(bench.engine, PROMPT, options)
                assert there.token_ids == here.token_ids
                assert [one.token_id for one in there.logprobs] == [
                    one.token_id for one in here.logprobs
                ]
        finally:
            await direct.stop(5)

    bench.run(claim())


def test_a_client_gets_the_same_ids_over_a_triton_and_without_one(
    bench: Bench, engines_dir: Path
) -> None:
    async def ids_of(app: FastAPI) -> list[int]:
        async with serving(app) as address, httpx.AsyncClient() as client:
            body = {"input_ids": PROMPT, "max_tokens": 24, "temperature": 0}
            for _ in range(2):  # the first fills the cache
                reply = await client.post(
                    f"{address.url}/v2/models/demo/generate", json=body, timeout=None
                )
            ids: list[int] = reply.json()["output_ids"]
            return ids

    async def claim() -> None:
        assert isinstance(bench.engine, TritonEngine)
        over = create_app(Settings(**SETTINGS, engine=f"triton://{bench.engine.address}"))
        direct = LlamaCppEngine(
            shelf.find(engines_dir, "tiny") / MODEL, context_tokens=CONTEXT, slots=SLOTS, threads=1
        )
        here = await ids_of(create_app(Settings(**SETTINGS), engine=direct))
        assert len(here) == 24
        assert await ids_of(over) == here

    bench.run(claim())


def test_versions_are_numbered_and_never_change(
    engines_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def contexts() -> dict[str, int]:
        return {
            file.parent.name: engine_of_version(file).limits().context_tokens
            for file in (tmp_path / "tiny").glob("*/settings.json")
        }

    told = ["export", "triton", "tiny", str(tmp_path), "--engines-dir", str(engines_dir)]
    monkeypatch.setenv("TRT_RESPONSES_CONTEXT_TOKENS", str(CONTEXT))
    assert main(told) == 0
    form = tmp_path / "tiny" / "config.pbtxt"
    written_ns = form.stat().st_mtime_ns
    monkeypatch.setenv("TRT_RESPONSES_CONTEXT_TOKENS", str(2 * CONTEXT))
    assert main(told) == 0
    assert contexts() == {"1": CONTEXT, "2": 2 * CONTEXT}
    assert (tmp_path / "tiny" / "2" / "model.py").exists()
    assert form.stat().st_mtime_ns == written_ns  # or Triton reloads every version
    assert main([*told, "--version", "2"]) == 2
    assert "already has a version 2" in capsys.readouterr().err
    assert main([*told, "--version", "7"]) == 0
    assert main(told) == 0
    assert sorted(contexts()) == ["1", "2", "7", "8"]
    assert main(["export", "triton", "nobody", str(tmp_path)]) == 2


def test_a_model_that_is_away_takes_no_work_and_then_does() -> None:
    async def scenario() -> None:
        looks: asyncio.Queue[None] = asyncio.Queue()

        async def sleep(_: float) -> None:
            await looks.get()

        engine = TritonEngine(Address("127.0.0.1", 9, "demo"), sleep=sleep)
        with pytest.raises(StartupError, match="does not answer"):
            await engine.start()
        with pytest.raises(EngineUnavailable):
            begin(engine, PROMPT, greedy())

    asyncio.run(scenario())


class Freezable:
    """Answers like a Triton, three ids for a stream that it never ends, until it is frozen."""

    def __init__(self) -> None:
        self.frozen = asyncio.Event()
        self.streams: list[asyncio.StreamWriter] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if self.frozen.is_set():
            self.streams.append(writer)
            return
        if b"/generate_stream " in head:
            body = b'data: {"output_ids": [5, 6, 7]}\n\n'
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + body)
            self.streams.append(writer)
            return
        limits = dumps({"limits": limits_text(Limits(CONTEXT, SLOTS))})
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(limits), limits))
        writer.close()


@pytest.mark.parametrize("frozen", [True, False])
def test_what_a_frozen_or_dead_triton_made_may_go_on_when_it_answers_again(frozen: bool) -> None:
    async def scenario() -> None:
        looks: asyncio.Queue[None] = asyncio.Queue()

        async def sleep(_: float) -> None:
            await looks.get()

        triton = Freezable()
        server = await asyncio.start_server(triton.answer, "127.0.0.1", 0)
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1], "demo")
        engine = TritonEngine(address, answer_s=0.2, sleep=sleep)
        await engine.start()
        told, _ = begin(engine, PROMPT, greedy())
        await told.some(3)
        looks.put_nowait(None)  # it answers: nothing is lost
        if frozen:
            await until(looks.empty)
            triton.frozen.set()
            for _ in range(MISSES):
                assert not told.finished
                looks.put_nowait(None)
        else:
            triton.streams[0].close()
        await told.done()
        assert (told.token_ids, told.chunks[-1].lost) == ([5, 6, 7], "died")
        assert not engine.health().ready
        triton.frozen.clear()
        looks.put_nowait(None)
        await until(lambda: engine.health().ready)
        again, _ = begin(engine, PROMPT, greedy())
        await again.some(3)
        await engine.stop(1)
        assert again.chunks[-1].lost is None
        server.close()
        for each in triton.streams:
            each.close()

    asyncio.run(scenario())


def test_the_death_of_the_engine_that_a_triton_runs_is_told_as_one() -> None:
    for error, lost in ((f"{LOST}it died", "died"), ("no such id", None)):
        told = Events().feed(b"data: " + dumps({"error": error}) + b"\n\n")
        assert told is not None
        assert (told.finish, told.lost) == ("error", lost)


@pytest.mark.parametrize("wrong", ["", "host", "host:port/model", "host:8000", "host:8000/"])
def test_a_place_is_a_host_a_port_and_a_model(wrong: str) -> None:
    with pytest.raises(StartupError, match="host:port/model"):
        address_of(wrong)
    assert address_of("triton:8000/openai/gpt-oss") == ("triton", 8000, "openai/gpt-oss")


def test_senders_that_raise_end_their_request_alone(repository: Path) -> None:
    async def scenario() -> None:
        stand_in = StandIn(repository / "tiny", "1")
        await stand_in.load()
        try:
            rows = {"input_ids": PROMPT}
            broken, good, odd = (
                stand_in.ask(rows, parameters)
                for parameters in ({"max_tokens": 5}, {"max_tokens": 5}, {"max_tokens": 5, "n": 2})
            )
            broken.sender.raises = True
            await until(lambda: good.sender.finals == 1)
            await until(lambda: odd.sender.finals == 1)
            told = await odd.sender.told.get()
            assert told is not None
            assert "unknown parameters: n" in str(told.error_told)
            assert broken.sender.finals == 0
        finally:
            await stand_in.unload()

    asyncio.run(scenario())


def test_a_request_may_be_cancelled_at_any_time(repository: Path) -> None:
    """Each is owed its one FINAL, and one whose sender raises keeps nobody else's from it."""

    async def scenario() -> None:
        stand_in = StandIn(repository / "tiny", "1")
        await stand_in.load()
        try:
            rows, long = {"input_ids": PROMPT}, {"max_tokens": 400}
            dead, before = stand_in.ask(rows, long), stand_in.ask(rows, long)
            dead.sender.raises_at_the_end = True
            dead.sender.cancelled = before.sender.cancelled = True
            await until(lambda: before.sender.finals == 1)
            during = stand_in.ask(rows, long)
            assert await during.sender.told.get() is not None
            during.sender.cancelled = True
            await until(lambda: during.sender.finals == 1)
            assert during.sender.told.qsize() < 398  # it did not write to its end
            after = stand_in.ask(rows, {"max_tokens": 2})
            await until(lambda: after.sender.finals == 1)
            after.sender.cancelled = True
            last = stand_in.ask(rows, {"max_tokens": 2})
            await until(lambda: last.sender.finals == 1)
            assert [one.sender.finals for one in (dead, after)] == [0, 1]
        finally:
            await stand_in.unload()

    asyncio.run(scenario())

"""Several front ends over one engine: whose ids go where, and what a front end's death costs."""

from __future__ import annotations

import asyncio
import os
import socket
from array import array
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.asgi import until
from tests.support.gather import Gather, begin, generated
from tests.support.remote_pair import VERSION, front_end, path_of, socket_served
from tests.support.scripted.engine import Script, ScriptedEngine, Stall, StepClock
from tests.support.turns import turn
from trt_responses.engine import Chunk, GenerateOptions, Logprob
from trt_responses.engines.remote import frames
from trt_responses.engines.remote.client import Connection, RemoteEngine
from trt_responses.engines.remote.frames import Kind, Splitter
from trt_responses.errors import EngineUnavailable, InvalidRequest, StartupError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.scripted.engine import Request
    from trt_responses.engine import Sink

OPTIONS = GenerateOptions(1000, ())
ENDLESS = Script(tuple((n,) for n in range(500)))


async def begun(engine: ScriptedEngine, count: int) -> list[Request]:
    await until(lambda: len(engine.requests) == count)
    return list(engine.requests)


def test_one_step_reaches_all_streams_of_a_front_end_in_one_turn(tmp_path: Path) -> None:
    async def run() -> None:
        turns: list[int] = []
        turn = 0

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        class Notes(Gather):
            def push(self, chunk: Chunk, /) -> None:
                turns.append(turn)
                super().push(chunk)

        loop = asyncio.get_running_loop()
        engine = ScriptedEngine([ENDLESS], clock=StepClock.manual())
        async with socket_served(engine, tmp_path) as server, front_end(server) as remote:
            sinks = [Notes() for _ in range(64)]
            for sink in sinks:
                remote.generate([1], OPTIONS, sink)
            await begun(engine, 64)
            loop.call_soon(count)
            await engine.clock.step()
            await until(lambda: all(sink.chunks for sink in sinks))
            assert len(turns) == 64
            assert len(set(turns)) == 1

    asyncio.run(run())


def test_each_front_end_hears_of_its_own_requests(tmp_path: Path) -> None:
    async def run() -> None:
        scripts = {1: Script(((10,), (11, 12), ())), 2: Script(((20,), (21,)))}
        engine = ScriptedEngine(lambda prompt, _: scripts[prompt[0]])
        async with (
            socket_served(engine, tmp_path) as server,
            front_end(server) as one,
            front_end(server) as other,
        ):
            told = await asyncio.gather(
                generated(one, [1], OPTIONS), generated(other, [2], OPTIONS)
            )
            assert [each.token_ids for each in told] == [[10, 11, 12], [20, 21]]

    asyncio.run(run())


def test_a_front_end_that_is_gone_frees_its_places_and_costs_nobody_else(tmp_path: Path) -> None:
    async def run() -> None:
        engine = ScriptedEngine([ENDLESS], clock=StepClock.manual(), max_batch=2)
        async with socket_served(engine, tmp_path) as server, front_end(server) as stays:
            async with front_end(server) as goes:
                begin(goes, [1], OPTIONS)
                begin(goes, [1], OPTIONS)
                gone = await begun(engine, 2)
                waiting, _ = begin(stays, [2], OPTIONS)
                await begun(engine, 3)
                await engine.clock.step()
                assert [request.state for request in engine.requests] == [
                    *("running", "running", "waiting")
                ]
            await until(lambda: {request.state for request in gone} == {"aborted"})
            await engine.clock.step()
            await until(lambda: bool(waiting.chunks))

    asyncio.run(run())


def test_a_new_stream_does_not_wait_behind_what_a_slow_front_end_has_yet_to_read(
    tmp_path: Path,
) -> None:
    """Its ids are among the next that the front end reads, not behind half a million others."""

    async def run() -> None:
        wide = Script((tuple(range(10_000)),) * 50)
        engine = ScriptedEngine(
            lambda prompt, _: wide if prompt[0] == 1 else Script(((7,), (8,))),
            clock=StepClock.manual(),
            context_tokens=2_000_000,
        )
        async with socket_served(engine, tmp_path) as server:
            with socket.socket(socket.AF_UNIX) as slow:
                slow.connect(path_of(server))
                slow.setblocking(False)
                options = GenerateOptions(10**7, ())
                slow.sendall(frames.generate(1, [1], options))
                await begun(engine, 1)
                await engine.clock.step(50)
                slow.sendall(frames.generate(2, [2], options))
                await begun(engine, 2)
                await engine.clock.step(3)
                loop, splitter = asyncio.get_running_loop(), Splitter()
                before, total, new = 0, 0, list[int]()
                while total < 500_000:
                    for kind, body in splitter.feed(await loop.sock_recv(slow, 65_536)):
                        found = _ids_of(kind, body)
                        new += found.get(2, ())
                        total += len(found.get(1, ()))
                        before = before if 8 in new else total
                assert new == [7, 8]
                assert before < 100_000

    asyncio.run(run())


def _ids_of(kind: int, body: bytes) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    if kind == Kind.RUNS:
        for number, ids in frames.read_runs(body):
            found.setdefault(number, []).extend(ids)
    elif kind == Kind.IDS:
        for number, token_id in frames.read_ids(body):
            found.setdefault(number, []).append(token_id)
    elif kind == Kind.CHUNKS:
        for number, chunk in frames.read_chunks(body):
            found.setdefault(number, []).extend(chunk.token_ids)
    return found


def test_a_front_end_that_does_not_read_is_given_up(tmp_path: Path) -> None:
    async def run() -> None:
        wide = Script((tuple(range(20_000)),) * 100)
        engine = ScriptedEngine([wide], max_batch=2)
        async with socket_served(engine, tmp_path, max_behind_bytes=100_000) as server:
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.connect(path_of(server))
                options = GenerateOptions(10**7, ())
                deaf.sendall(frames.generate(1, [1], options))
                [request] = await begun(engine, 1)
                await until(lambda: request.state == "aborted")
            async with front_end(server) as other:
                told, handle = begin(other, [1], options)
                await told.some(10)
                handle.abort()

    asyncio.run(run())


def test_an_engine_that_says_no_later_says_it_as_it_would_at_once(tmp_path: Path) -> None:
    class Refuses(ScriptedEngine):
        def generate(self, prompt_ids: object, options: object, sink: object) -> Request:
            raise InvalidRequest("This prompt has killed the engine twice.", param="input")

    async def run() -> None:
        async with (
            socket_served(Refuses([ENDLESS]), tmp_path) as server,
            front_end(server) as remote,
        ):
            told = await generated(remote, [1], OPTIONS)
            refusal = told.chunks[-1].refusal
            assert refusal is not None
            assert (refusal.status, refusal.param) == (400, "input")

    asyncio.run(run())


def test_an_engine_that_is_lost_ends_the_streams_and_takes_no_more(tmp_path: Path) -> None:
    async def run() -> None:
        engine = ScriptedEngine([Script(((1,), Stall()))])
        async with socket_served(engine, tmp_path) as server, front_end(server) as remote:
            told, _ = begin(remote, [1], OPTIONS)
            await told.some(1)
            engine.kill("its card fell off the bus")
            await told.done()
            assert told.end.error == "its card fell off the bus"
            await until(lambda: not remote.health().ready)
            assert remote.health().reason == "its card fell off the bus"
            with pytest.raises(EngineUnavailable, match="fell off"):
                begin(remote, [1], OPTIONS)

    asyncio.run(run())


def test_a_lost_connection_ends_the_streams_and_is_made_anew(tmp_path: Path) -> None:
    async def run() -> None:
        engine = ScriptedEngine([Script(((1,), Stall())), Script(((2,),))])
        async with socket_served(engine, tmp_path) as server, front_end(server) as remote:
            told, _ = begin(remote, [1], OPTIONS)
            await told.some(1)
            for connection in server.front_ends:
                connection.close()
            await told.done()
            assert told.end.finish == "error"
            await until(lambda: remote.health().ready)
            assert (await generated(remote, [1], OPTIONS)).token_ids == [2]

    asyncio.run(run())


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff" * 8,
        frames.HEAD.pack(1 << 31, frames.Kind.IDS),
        frames.frame(frames.Kind.IDS, b"12345"),
        frames.frame(frames.Kind.RUNS, b"1234"),
        frames.frame(frames.Kind.RUNS, array("I", (1, 3, 7)).tobytes()),
        frames.frame(frames.Kind.CHUNKS, b"[[1, 2]]"),
        frames.frame(frames.Kind.CHUNKS, b"nothing"),
        frames.frame(frames.Kind.STATE, b"{}"),
    ],
    ids=[
        "kind",
        "size",
        "half a pair",
        "half a run",
        "two ids short",
        "half a chunk",
        "no JSON",
        "no state",
    ],
)
def test_what_is_no_frame_ends_the_connection_and_it_is_made_anew(
    tmp_path: Path, nonsense: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        engine = ScriptedEngine([Script(((1,), Stall())), Script(((2,),))])
        async with socket_served(engine, tmp_path) as server, front_end(server) as remote:
            told, _ = begin(remote, [1], OPTIONS)
            await told.some(1)
            for connection in tuple(server.front_ends):
                connection.write(nonsense)
            await told.done()
            assert told.end.finish == "error"
            await until(lambda: remote.health().ready)
            assert (await generated(remote, [1], OPTIONS)).token_ids == [2]

    asyncio.run(run())
    said = [record for record in caplog.records if "unreadable frame" in record.message]
    assert len(said) == 1
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_sink_that_raises_costs_the_others_nothing(tmp_path: Path) -> None:
    class Raises:
        def push(self, chunk: Chunk, /) -> None:
            raise RuntimeError("broken")

    async def run() -> None:
        engine = ScriptedEngine([Script(((1,), (2,), (3,)))])
        async with socket_served(engine, tmp_path) as server, front_end(server) as remote:
            remote.generate([1], OPTIONS, Raises())
            assert (await generated(remote, [1], OPTIONS)).token_ids == [1, 2, 3]

    asyncio.run(run())


def test_a_request_at_which_the_engine_breaks_costs_the_others_nothing(tmp_path: Path) -> None:
    class Breaks(ScriptedEngine):
        def generate(self, prompt_ids: Sequence[int], options: GenerateOptions, sink: Sink) -> Any:
            if prompt_ids == [13]:
                raise KeyError(13)
            return super().generate(prompt_ids, options, sink)

    async def run() -> None:
        engine = Breaks([Script(((1,), Stall()))])
        async with socket_served(engine, tmp_path) as server, front_end(server) as remote:
            beside, _ = begin(remote, [1], OPTIONS)
            await beside.some(1)
            broken = await generated(remote, [13], OPTIONS)
            assert broken.end.finish == "error"
            assert "KeyError" in (broken.end.error or "")
            assert beside.chunks[-1].finish is None

    asyncio.run(run())


def test_a_front_end_that_sends_no_frame_is_given_up_and_connects_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        engine = ScriptedEngine([Script(((1,),))])
        async with socket_served(engine, tmp_path) as server, front_end(server) as remote:
            _, writer = await asyncio.open_unix_connection(path_of(server))
            writer.write(frames.frame(frames.Kind.GENERATE, b"nothing"))
            await until(lambda: len(server.front_ends) == 2)
            await until(lambda: len(server.front_ends) == 1)
            writer.close()
            assert (await generated(remote, [1], OPTIONS)).token_ids == [1]

    asyncio.run(run())
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_process_of_another_version_in_the_place_of_ours_ends_this_server(tmp_path: Path) -> None:
    """As after an upgrade under a server that runs: it could wait for ever."""

    async def run() -> None:
        async with AsyncExitStack() as ours:
            serving = socket_served(ScriptedEngine([ENDLESS]), tmp_path)
            server = await ours.enter_async_context(serving)
            async with front_end(server) as remote:
                os.unlink(path_of(server))
                other = socket_served(ScriptedEngine([ENDLESS]), tmp_path, version="2.0")
                async with other:
                    await ours.aclose()
                    await until(lambda: not remote.health().alive)
                    assert "has version 2.0" in (remote.health().reason or "")

    asyncio.run(run())


def test_another_version_on_the_other_side_stops_the_start(tmp_path: Path) -> None:
    async def run() -> None:
        async with socket_served(ScriptedEngine([ENDLESS]), tmp_path) as server:
            other = RemoteEngine("2.0", path=path_of(server))
            with pytest.raises(
                StartupError, match=rf"has version {VERSION}, and this server has 2"
            ):
                await other.start()

    asyncio.run(run())


def test_nobody_at_the_socket_stops_the_start(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(StartupError, match="did not answer within"):
            await RemoteEngine(VERSION, path=str(tmp_path / "none"), start_s=0.01).start()

    asyncio.run(run())


def test_steps_that_come_together_are_one_chunk_for_each_stream_in_their_order() -> None:
    """So a front end that is behind the engine catches up."""
    pair: frames.Pending = [(1, Chunk((5,))), (2, Chunk((6,)))]
    several: frames.Pending = [(1, Chunk((7, 8)))]
    last: frames.Pending = [(2, Chunk((9,), cached_tokens=3, finish="stop"))]
    scored: frames.Pending = [(1, Chunk((4,), [Logprob(4, -0.5)], finish="length"))]
    together = b"".join(map(frames.steps, (pair, several, pair, [*pair, *last], scored)))

    async def run() -> None:
        connection, sinks = Connection(), [Gather(), Gather()]
        for number, sink in enumerate(sinks, 1):
            connection.begin(number, [1], OPTIONS, sink)
        connection.data_received(frames.steps(pair))
        connection.data_received(together)
        assert [list(chunk.token_ids) for chunk in sinks[0].chunks] == [[5], [5, 7, 8, 5, 5], [4]]
        assert [list(chunk.token_ids) for chunk in sinks[1].chunks] == [[6], [6, 6, 6, 9]]
        assert sinks[1].chunks[-1][2:4] == (3, "stop")
        assert [entry.token_id for entry in sinks[0].chunks[-1].logprobs] == [4], (
            "one for each of its ids"
        )

    asyncio.run(run())


def test_requests_of_one_turn_leave_in_one_write() -> None:
    async def run() -> None:
        written: list[bytes] = []
        connection, wire = (
            Connection(),
            SimpleNamespace(write=written.append, is_closing=lambda: False),
        )
        connection.connection_made(cast("asyncio.Transport", wire))
        connection.begin(1, [1], OPTIONS, Gather())
        connection.begin(2, [1], OPTIONS, Gather())
        connection.abort(1)
        await turn()
        connection.begin(3, [1], OPTIONS, Gather())
        await turn()
        told = [[kind for kind, _ in Splitter().feed(data)] for data in written]
        assert told == [[Kind.GENERATE, Kind.GENERATE, Kind.ABORT], [Kind.GENERATE]]

    asyncio.run(run())

"""Of four engines of one model two are killed, one is frozen and one replaced under 50
conversations: no turn is lost, and none is there twice. One of them is a server like vLLM.

Budget: 15 s on one core.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.double.llm import nothing_ignored
from tests.support.id_servers import COUNTS, server_process
from tests.support.polling import until_seen
from tests.support.several import answer, killable, named, several_served
from tests.support.story import story
from trt_responses.engines.distant import Patience as HttpPatience
from trt_responses.engines.http_engine import HttpEngine
from trt_responses.engines.http_server import Address
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.engines.remote.process import EngineProcess, Patience
from trt_responses.engines.vllm.wire import VllmWire

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable

    from tests.support.several import SeveralServed
    from trt_responses.engine import Engine
    from trt_responses.features.several.replica import Replica

CONVERSATIONS = 50
PATIENCE = Patience(silence_s=4.0, restarts=50, first_backoff_s=0.01)
HTTP_PATIENCE = HttpPatience(look_s=0.1)


class Engines:
    """Makes the engines, and knows their processes."""

    def __init__(self) -> None:
        self.processes: list[EngineProcess] = []

    def new(self) -> RemoteEngine:
        engine, process = killable(PATIENCE)
        self.processes.append(process)
        return engine


class Vllm:
    """A server that somebody else starts, and starts again on its port."""

    def __init__(self, process: Process, port: int, stack: AsyncExitStack) -> None:
        self._process, self._port, self._stack = process, port, stack

    def engine(self) -> HttpEngine:
        address = Address("127.0.0.1", self._port)
        return HttpEngine(address, VllmWire(), HTTP_PATIENCE, find_ignored=nothing_ignored)

    async def kill(self, replica: Replica) -> None:
        """Kill it at work, and wait until another one serves."""
        await until_seen(lambda: replica.able and replica.running > 0)
        self._process.kill()
        await until_seen(lambda: not replica.able)
        begun = server_process("vllm", self._port, COUNTS)
        await self._stack.enter_async_context(begun)
        await until_seen(lambda: replica.able)


class Conversation:
    """One user, whose every turn names a number of its own."""

    def __init__(self, s: SeveralServed, name: int) -> None:
        self._s = s
        self._name = name
        self.turns: list[str] = []
        self.last: str | None = None
        self.repeated = 0

    async def talk(self, over: Callable[[], bool]) -> None:
        while len(self.turns) < 2 or not over():
            number = str(1000 * self._name + len(self.turns))
            asked = {"input": f"number={number};", "previous_response_id": self.last}
            call = await self._s.client.create(**asked, stream=bool(self._name % 2))
            if call.status == 503:  # two deaths in a row befell it: its client asks again
                self._told(call.error)
                continue
            assert call.status == 200, call.body
            made = call.events[-1]["response"] if self._name % 2 else call.json()
            if made["status"] == "failed":
                self._told(call.events[-2])
                continue
            assert made["status"] == "completed", made["error"]
            assert made["output"][-1]["content"][0]["text"] == answer(number)
            if self._name % 2:
                deltas = [e["delta"] for e in call.events if e["type"].endswith("text.delta")]
                assert "".join(deltas) == answer(number)
            self.turns.append(number)
            self.last = made["id"]

    def _told(self, error: dict[str, Any]) -> None:
        assert error["code"] == "engine_lost"
        assert "died twice" in error["message"]
        self.repeated += 1
        assert self.repeated == 1, "three deaths are two in a row at most once"

    async def kept(self) -> Counter[str]:
        """How often each number is in the history."""
        found: Counter[str] = Counter()
        response_id = self.last
        while response_id is not None:
            items = await self._s.client.get(f"/v1/responses/{response_id}/input_items?limit=100")
            found.update(marks(items.json()["data"]))
            made = (await self._s.client.get(f"/v1/responses/{response_id}")).json()
            response_id = made["previous_response_id"]
        return found


def marks(items: list[dict[str, Any]]) -> list[str]:
    texts = (item["content"][0]["text"] for item in items if item.get("role") == "user")
    return [named(text) for text in texts]


async def hurt(replica: Replica, process: EngineProcess, number: signal.Signals) -> None:
    """Send its process a signal, once it is at work, and wait until another one serves."""
    await until_seen(lambda: replica.able and replica.running > 0)
    pid = process.pid
    assert pid is not None
    os.kill(pid, number)
    await until_seen(lambda: process.pid not in (None, pid) and replica.able)


async def replace(replica: Replica, process: EngineProcess) -> None:
    """End its process when it has nothing left, and send it requests when there is another."""
    replica.row.draining = True
    await until_seen(lambda: replica.running == 0)
    pid = process.pid
    process.restart("it is replaced")
    await until_seen(lambda: process.pid not in (None, pid) and replica.health().ready)
    replica.row.draining = False


@pytest.mark.slow  # eight processes that begin
@story
async def test_no_turn_is_lost_or_doubled_whatever_becomes_of_any_of_its_engines() -> None:
    engines, over = Engines(), asyncio.Event()
    async with AsyncExitStack() as stack:
        process, port = await stack.enter_async_context(server_process("vllm", 0, COUNTS))
        vllm = Vllm(process, port, stack)
        makers: list[Callable[[], Engine]] = [engines.new] * 3
        s = await stack.enter_async_context(several_served({"demo": [*makers, vllm.engine]}))
        replicas = list(s.replicas.values())
        await until_seen(lambda: all(each.able for each in replicas))
        users = [Conversation(s, name) for name in range(1, CONVERSATIONS + 1)]
        talking = [asyncio.create_task(each.talk(over.is_set)) for each in users]
        await hurt(replicas[0], engines.processes[0], signal.SIGKILL)
        await vllm.kill(replicas[3])
        await hurt(replicas[1], engines.processes[1], signal.SIGSTOP)
        await replace(replicas[2], engines.processes[2])
        over.set()
        await asyncio.gather(*talking)
        assert all(each.requests for each in replicas)
        for user in users:
            assert await user.kept() == Counter(user.turns)

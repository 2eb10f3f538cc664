"""Several engines behind one app in memory, and one that can be killed in a process of its own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.support.asgi import Client, living
from tests.support.echo_engines import program
from tests.support.greedy import ends_with
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import SETTINGS, ids, vocabulary
from trt_responses import __version__
from trt_responses.app import create_app
from trt_responses.engines.remote.child import host
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.engines.remote.process import EngineProcess, Patience
from trt_responses.features.several.engine import SeveralEngines
from trt_responses.features.several.group import Group
from trt_responses.features.several.replica import Replica
from trt_responses.harmony.dialect import harmony
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from trt_responses.dialect import Dialect
    from trt_responses.engine import Engine, GenerateOptions

WORDS = 30
STEP_S = 0.03
ADMIN: dict[str, Any] = {"admin_key": "admin-key"}


class SeveralServed:
    """The app, and the engines behind it by their labels."""

    def __init__(self, app: Any, engines: SeveralEngines) -> None:
        self.app = app
        self.client = Client(app)
        self.replicas = {replica.label: replica for replica in engines.replicas()}


@asynccontextmanager
async def several_served(
    models: Mapping[str, Sequence[Callable[[], Engine]]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    dialects: Mapping[str, Dialect] | None = None,
    **settings: Any,
) -> AsyncIterator[SeveralServed]:
    """Each model with what makes its engines; the first is the one that tests serve."""
    groups = [
        Group(
            name,
            [
                Replica(f"{name}/{number}", "here", new, sleep)
                for number, new in enumerate(makers, 1)
            ],
        )
        for name, makers in models.items()
    ]
    dialects = dialects or dict.fromkeys(models, harmony(vocabulary()))
    engines = SeveralEngines(groups, dialects)
    app = create_app(Settings(**(SETTINGS | ADMIN | settings)), engine=engines)
    async with living(app):
        yield SeveralServed(app, engines)


def counting(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    """Answers a prompt with the number that it names and a long row of words, from wherever the
    answer stands."""
    whole = answer_ids(named(vocabulary().text(list(prompt_ids))))
    given = next(n for n in range(len(whole), -1, -1) if ends_with(prompt_ids, whole[:n]))
    return Script(tuple((token_id,) for token_id in whole[given:]))


def named(text: str) -> str:
    return text.rpartition("number=")[2].partition(";")[0]


def answer_ids(number: str) -> tuple[int, ...]:
    return ids(f"<|channel|>final<|message|>{answer(number)}<|return|>")


def answer(number: str) -> str:
    return f"It is {number}:" + "".join(f" {word}" for word in range(WORDS))


class Paced(ScriptedEngine):
    """Steps at the pace of a small model."""

    def __init__(self) -> None:
        super().__init__(counting, clock=StepClock.manual(), max_batch=64)

    async def start(self) -> None:
        await super().start()
        self._step()

    def _step(self) -> None:
        self.clock.step_alone()
        asyncio.get_running_loop().call_later(STEP_S, self._step)


def killable(patience: Patience) -> tuple[RemoteEngine, EngineProcess]:
    """Such an engine in a process that a test kills; it is restarted."""
    process = EngineProcess(program(__name__), {}, patience)
    return RemoteEngine(__version__, process=process), process


def main() -> None:
    host(lambda given: Paced())

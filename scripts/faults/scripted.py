"""A server as `serve` runs it, over an engine that plays a model: each prompt has one answer.

`python -m scripts.faults.scripted KIND`; settings come from the environment. The kinds:

    paced      an id every few milliseconds
    garbage    one answer in two is nonsense: ids without meaning, and ids that are none
    frames     as `paced`, behind a socket, where nonsense stands between the engine's frames
    steady     as `paced`: a very long answer to a prompt that ends in STEADY, a call of the tool
               `add` of the MCP server LABEL to one that ends in CALL LABEL, else a short answer
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.remote_pair import VERSION, path_of, socket_served
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from trt_responses.app import create_app
from trt_responses.backends.dialects import vocabulary
from trt_responses.engines.remote.client import RemoteEngine
from trt_responses.logs import log_to_stderr
from trt_responses.serve.server import Server, bound, lasting, run_server
from trt_responses.settings import Settings
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trt_responses.engine import Engine, GenerateOptions, GuideKind

STEP_S = 0.004
WORDS = 60
NONSENSE_EVERY_S = 0.7
PIECE = 1 << 16


class Paced(ScriptedEngine):
    """Makes a step every few milliseconds, while it is started."""

    def __init__(
        self,
        answer: Callable[[Sequence[int], GenerateOptions], Script],
        context_tokens: int = 8192,
        guides: Mapping[GuideKind, frozenset[int]] | None = None,
    ) -> None:
        clock = StepClock.manual(settle_turns=1)
        super().__init__(
            answer,
            clock=clock,
            context_tokens=context_tokens,
            max_batch=8,
            guides=guides,
            keep_records=1,  # else they are what grows under load
        )
        self._pacing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        self._pacing = asyncio.create_task(self._pace())

    async def stop(self, deadline_s: float) -> None:
        if self._pacing is not None:
            self._pacing.cancel()
            with suppress(asyncio.CancelledError):
                await self._pacing
        await super().stop(deadline_s)

    async def _pace(self) -> None:
        while True:
            await asyncio.sleep(STEP_S)
            await self.clock.step()


def answer(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    """Numbers that follow from the prompt, continued if the prompt ends with some of them."""
    begin = len(prompt_ids) - list(reversed(prompt_ids)).index(CONTROL.start) + 1
    root = ",".join(map(str, prompt_ids[:begin])).encode()
    numbers = random.Random(sha256(root).digest())
    text = "".join(f" {numbers.randrange(1000)}" for _ in range(WORDS))
    ids = vocabulary().encoding.encode(
        f"<|channel|>final<|message|>{text}<|return|>", allowed_special="all"
    )
    return Script(tuple((token_id,) for token_id in ids[len(prompt_ids) - begin :]))


def garbage() -> Callable[[Sequence[int], GenerateOptions], Script]:
    chance = random.Random(1)

    def nonsense() -> int:
        kinds = (chance.randrange(201_088), chance.randrange(200_000, 201_088))
        return chance.choice((*kinds, *kinds, 1 << 31, (1 << 32) - 1, 201_088))

    def write(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        if chance.random() < 0.5:
            return answer(prompt_ids, options)
        return Script(tuple((nonsense(),) for _ in range(chance.randrange(1, WORDS))))

    return write


STEADY, CALL = "STEADY", "CALL"
STEPS = 100_000
"""Of the long answer: seven minutes."""
GUIDES: Mapping[GuideKind, frozenset[int]] = dict.fromkeys(
    ("json_schema", "regex", "lark"), frozenset({CONTROL.endoftext})
)


def steady(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    end = vocabulary().text(list(prompt_ids[-12:]))
    if options.guide is not None:
        return Script(((*_ids("{}"), CONTROL.endoftext),))
    if STEADY in end:
        begin, (word,) = _ids("<|channel|>final<|message|>"), _ids(" word")
        return Script((begin, *[(word,)] * STEPS))
    called = re.search(rf"{CALL} (\w+)", end)
    header = f" to=functions.{called[1]}__add <|constrain|>json" if called else ""
    channel, body = ("commentary", "{}<|call|>") if header else ("final", "Hello.<|return|>")
    if end.endswith("<|message|>"):  # where strict tools are, it is asked anew behind its header
        return Script((_ids(body),))
    return Script((_ids(f"<|channel|>{channel}{header}<|message|>{body}"),))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(vocabulary().encoding.encode(text, allowed_special="all"))


class BadLine(RemoteEngine):
    """An engine behind a socket, and behind somebody who puts nonsense between its frames."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._stack = AsyncExitStack()
        self._chance = random.Random(1)
        super().__init__(VERSION, path=str(Path(self._folder.name) / "line.sock"))

    async def start(self) -> None:
        engine = socket_served(Paced(answer), Path(self._folder.name))
        self._far = path_of(await self._stack.enter_async_context(engine))
        line = await asyncio.start_unix_server(self._relay, self._path)
        self._stack.callback(line.close)
        await super().start()

    async def stop(self, deadline_s: float) -> None:
        await super().stop(deadline_s)
        await self._stack.aclose()
        self._folder.cleanup()

    async def _relay(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, there = await asyncio.open_unix_connection(self._far)
        tasks = [
            asyncio.create_task(_pump(near, there)),
            asyncio.create_task(_pump(far, back)),
            asyncio.create_task(self._disturb(back)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        back.close()
        there.close()

    async def _disturb(self, back: asyncio.StreamWriter) -> None:
        while True:
            await asyncio.sleep(NONSENSE_EVERY_S)
            back.write(self._chance.randbytes(self._chance.randrange(1, 200)))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(PIECE):
        sink.write(data)


KINDS: dict[str, Callable[[], Engine]] = {
    "paced": lambda: Paced(answer),
    "garbage": lambda: Paced(garbage()),
    "frames": BadLine,
    "steady": lambda: Paced(steady, context_tokens=131_072, guides=GUIDES),
}


def main(kind: str) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = Settings.from_environment()
    log_to_stderr(settings)
    with bound(settings) as address:
        app = create_app(lasting(settings), engine=KINDS[kind]())
        with suppress(KeyboardInterrupt):  # uvicorn raises what stopped it again
            run_server(Server(app, settings), address)


if __name__ == "__main__":
    main(sys.argv[1])

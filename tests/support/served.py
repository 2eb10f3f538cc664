"""The app in memory with the scripted engine: what the protocol tests stand on."""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.support import tokens
from tests.support.asgi import Client, living
from tests.support.scripted.engine import Script, ScriptedEngine, Stall, StepClock
from trt_responses.app import create_app
from trt_responses.engine import EXTRAS
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from tests.support.scripted.engine import Request, Step
    from trt_responses.engine import GenerateOptions, GuideKind
    from trt_responses.features.health.health import Health
    from trt_responses.store import Store
    from trt_responses.tool import Tool

    Written = str | Script | Callable[[Sequence[int], GenerateOptions], Script]
    from collections.abc import Callable, Sequence

ANSWER = "<|channel|>final<|message|>Hello there, friend.<|return|>"
THOUGHT = (
    "<|channel|>analysis<|message|>They greet me.<|end|><|start|>assistant"
    "<|channel|>final<|message|>Hello there, friend.<|return|>"
)
CALL = (
    "<|channel|>analysis<|message|>I need the weather.<|end|><|start|>assistant"
    "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    '{"city": "Bern"}<|call|>'
)
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
SETTINGS = {"date": "2026-02-03", "model": "demo"}


vocabulary = tokens.vocabulary


def ids(text: str) -> tuple[int, ...]:
    """Text with its control ids spelled out."""
    return tuple(vocabulary().encoding.encode(text, allowed_special="all"))


def script(text: str, *tail: Step) -> Script:
    """One id at each step, as an engine writes."""
    return Script((*((i,) for i in ids(text)), *tail))


def squared(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
    """An answer that only this prompt gets: the square of the number that it names."""
    named = vocabulary().text(list(prompt_ids)).rpartition("number=")[2]
    number = int(named.partition(";")[0])
    return script(f"<|channel|>final<|message|>The square is {number * number}.<|return|>")


class Served:
    """An app that lives, and the parts that a test looks into."""

    def __init__(self, client: Client, engine: ScriptedEngine, app: Any) -> None:
        self.client = client
        self.engine = engine
        self.app = app
        self.runs = app.state.runs
        self.lifecycle = app.state.lifecycle

    @property
    def health(self) -> Health:
        from trt_responses.features.health.health import Health  # a folder that may be missing

        found: Health = self.app.state.server.of(Health)
        return found

    @property
    def clock(self) -> StepClock:
        return self.engine.clock

    @property
    def last(self) -> Request:
        """The engine request that began last."""
        return self.engine.requests[-1]

    def burn_out(self) -> None:
        self.engine.kill("burnt out")

    def drain(self) -> None:
        self.lifecycle.drain(0)

    def prompt(self, number: int = -1) -> list[int]:
        return list(self.engine.requests[number].prompt_ids)

    def prompt_text(self, number: int = -1) -> str:
        return vocabulary().text(self.prompt(number))


@asynccontextmanager
async def served(
    *written: Written,
    store: Store | None = None,
    manual: bool = False,
    context_tokens: int = 131_072,
    max_batch: int = 64,
    max_logprobs: int = 20,
    guides: Mapping[GuideKind, frozenset[int]] | None = None,
    adapters: tuple[str, ...] = (),
    extras: frozenset[str] = EXTRAS,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    tools: Sequence[Tool] | None = None,
    **settings: object,
) -> AsyncIterator[Served]:
    """An app whose engine replays what is written, the last of it for ever."""
    clock = StepClock.manual(settle_turns=40) if manual else StepClock.free()
    engine = ScriptedEngine(
        _scripts(written or (ANSWER,)),
        clock=clock,
        context_tokens=context_tokens,
        max_batch=max_batch,
        max_logprobs=max_logprobs,
        guides=guides,
        adapters=adapters,
        extras=extras,
    )
    app = create_app(
        Settings(**(SETTINGS | settings)), engine=engine, store=store, tools=tools, sleep=sleep
    )
    async with living(app):
        yield Served(Client(app, lambda: clock.steps), engine, app)


def _scripts(
    written: tuple[Written, ...],
) -> Callable[[Sequence[int], GenerateOptions], Script]:
    left = list(written)

    def next_script(prompt_ids: Sequence[int], options: GenerateOptions) -> Script:
        current = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(current, str):
            return script(current)
        return current if isinstance(current, Script) else current(prompt_ids, options)

    return next_script


STALLED = script("<|channel|>final<|message|>Hold on", Stall())
LONG = Script(tuple((i,) for i in ids("<|channel|>final<|message|>") + ids(" word") * 200))
KEY = base64.b64encode(bytes(range(32))).decode()
KEYED: dict[str, Any] = {"seal_keys": KEY}


def written(one: Script) -> list[int]:
    return [token_id for step in one.steps if isinstance(step, tuple) for token_id in step]


def result(call_id: str, text: str = "Sunny.") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


ENDLESS = Script(tuple((i,) for i in ids("<|channel|>final<|message|>") + ids(" word") * 5000))


@cache
def wide(count: int) -> Script:
    """Steps of many ids, so that a stream is larger than any socket's buffer."""
    return Script((ids("<|channel|>final<|message|>"), *[ids(" word") * 600] * count))

"""The app in memory over a model that does not speak Harmony, whose ids a script writes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.asgi import Client, living
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import SETTINGS, Served
from tests.support.template_families import checkpoint
from tests.support.template_turns import ids_of
from trt_responses.app import create_app
from trt_responses.dialects.templates.dialect import TemplateDialect
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from trt_responses.store import Store
    from trt_responses.tool import Tool


def dialect_of(name: str) -> TemplateDialect:
    """Of the template of this name, over a small vocabulary."""
    one = checkpoint(name)
    own = [one.tokeniser.id_of(text) for text in one.family.terminators]
    ends = [token_id for token_id in own if token_id is not None]
    return TemplateDialect(one.template, one.tokeniser, one.family, ends)


@asynccontextmanager
async def template_served(
    name: str,
    *written: str,
    store: Store | None = None,
    tools: Sequence[Tool] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    context_tokens: int = 131_072,
    **settings: object,
) -> AsyncIterator[Served]:
    """An app whose engine writes each text once, and the last for ever; control strings are
    spelled out."""
    clock, left = StepClock.free(), list(written)

    def next_script(*_: object) -> Script:
        text = left.pop(0) if len(left) > 1 else left[0]
        return Script(tuple((token_id,) for token_id in ids_of(name, text)))

    engine = ScriptedEngine(next_script, clock=clock, context_tokens=context_tokens)
    chosen = Settings(**(SETTINGS | settings))
    spoken = dialect_of(name)
    app = create_app(chosen, engine=engine, speaks=spoken, store=store, tools=tools, sleep=sleep)
    async with living(app):
        yield Served(Client(app, lambda: clock.steps), engine, app)

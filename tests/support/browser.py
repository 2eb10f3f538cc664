"""A real browser, headless, for the page at `/`. Where there is none its tests are skipped."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import async_playwright, expect

from tests.support.asgi import until
from tests.support.scripted.engine import Script, ScriptedEngine, StepClock
from tests.support.served import ANSWER, SETTINGS, script, vocabulary
from tests.support.serving import Address, serving
from trt_responses.app import create_app
from trt_responses.settings import Settings
from trt_responses.tokens.control import CONTROL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from playwright.async_api import Browser, Page

    from trt_responses.engine import GuideKind

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE_MS = 120_000
"""Longer than any wait in a test takes: one that reaches it has found a fault."""
expect.set_options(timeout=PATIENCE_MS)

ENDS = frozenset({CONTROL.endoftext})
GUIDES: Mapping[GuideKind, frozenset[int]] = {"json_schema": ENDS, "regex": ENDS}
FINAL = "<|channel|>final<|message|>"
STORY = (
    "<|channel|>analysis<|message|>They want *markdown*.<|end|><|start|>assistant"
    "<|channel|>final<|message|>"
    "# Rivers\n\nThe **Aare** is `288 km` long, see [here](https://example.org/aare).\n\n"
    "- one\n- two\n\n```python\nprint('hi')\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |<|return|>"
)
"""An answer with a thought, and most of what Markdown has."""


class Seen:
    """What a page did behind its picture: its errors, and its requests."""

    def __init__(self, page: Page) -> None:
        self.faults: list[str] = []
        self.hosts: set[str] = set()
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        page.on("popup", lambda popup: self.faults.append(f"popup: {popup.url}"))
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))


class Shared:
    """One browser for all tests of a process, and the event loop that it lives on."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._life = AsyncExitStack()
        self._browser: Browser | None = None

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        self._runner.run(asyncio.wait_for(story(), 240))

    async def browser(self) -> Browser:
        if self._browser is None:
            playwright = await self._life.enter_async_context(async_playwright())
            launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            self._life.push_async_callback(launched.close)
            self._browser = launched
        return self._browser

    def close(self) -> None:
        self._runner.run(self._life.aclose())
        self._runner.close()


SHARED = Shared()
"""`tests/e2e/conftest.py` closes it."""
play = SHARED.play


@asynccontextmanager
async def browsing(url: str, **context: Any) -> AsyncIterator[tuple[Page, Seen]]:
    """The page of a server, loaded, in a profile of its own; it may ask for a key."""
    browser = await SHARED.browser()
    page = await browser.new_page(**context)
    try:
        page.set_default_timeout(PATIENCE_MS)
        seen = Seen(page)
        await page.goto(url)
        yield page, seen
    finally:
        await page.close()


async def ready(page: Page) -> None:
    await page.wait_for_selector("body[data-ready]")


async def ask(page: Page, text: str) -> None:
    await page.fill("#ask", text)
    await page.press("#ask", "Enter")


async def opened(page: Page, part: str) -> None:
    """The part beside the chat is open: `past`, `look` or `set`."""
    if not await page.locator(f"#{part}").is_visible():
        await page.click(f"#to-{part}")


async def answered(page: Page, turns: int = 1) -> None:
    """That many turns are shown, and the last is over."""
    await page.wait_for_selector(f".turn:nth-child({turns}):not(.running) footer button")


class Stage:
    """A served app, its engine, and a browser that shows its page."""

    def __init__(self, page: Page, engine: ScriptedEngine, address: Address, seen: Seen) -> None:
        self.page = page
        self.engine = engine
        self.address = address
        self.seen = seen

    def prompt(self, number: int = -1) -> str:
        return vocabulary().text(list(self.engine.requests[number].prompt_ids))

    async def asked(self, count: int) -> None:
        """The engine has begun so many requests."""
        await until(lambda: len(self.engine.requests) >= count)


@asynccontextmanager
async def staged(
    *written: str | Script, manual: bool = False, **settings: Any
) -> AsyncIterator[Stage]:
    """`tools` in the settings are the server's own, in the place of those that settings name."""
    context, tools = settings.pop("context", {}), settings.pop("tools", None)
    guides = settings.pop("guides", GUIDES)
    scripts = [script(one) if isinstance(one, str) else one for one in written or (ANSWER,)]
    clock = StepClock.manual(settle_turns=40) if manual else StepClock.free()
    engine = ScriptedEngine(scripts, clock=clock, guides=guides)
    app = create_app(Settings(**(SETTINGS | settings)), engine=engine, tools=tools)
    async with serving(app) as address, browsing(address.url, **context) as (page, seen):
        if "api_keys" not in settings:
            await ready(page)
        yield Stage(page, engine, address, seen)
        assert seen.faults == []
        assert seen.hosts == {f"{address.host}:{address.port}"}

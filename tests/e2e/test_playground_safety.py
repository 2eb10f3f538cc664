"""The page at `/` for everybody: hostile texts, keys, the keyboard, phones, and axe's rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Error as BrowserFault
from playwright.async_api import expect

from tests.support.browser import (
    FINAL,
    STORY,
    answered,
    ask,
    needs_chromium,
    opened,
    play,
    ready,
    staged,
)
from tests.support.scripted.engine import Script
from tests.support.scripted_tool import ScriptedTool
from tests.support.served import ANSWER, CALL, WEATHER, ids, vocabulary

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = needs_chromium


def test_a_wrong_key_is_told_and_a_right_one_is_kept_in_memory_alone() -> None:
    async def story() -> None:
        async with staged(api_keys="ann:right") as s:
            dialog = s.page.locator("#key-dialog")
            await expect(dialog).to_be_visible()
            await s.page.fill("#key", "wrong")
            await s.page.press("#key", "Enter")
            await expect(dialog).to_contain_text("not one of this server's")
            await s.page.fill("#key", "right")
            await s.page.press("#key", "Enter")
            await ready(s.page)
            await ask(s.page, "Hello")
            await answered(s.page)
            kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
            assert "right" not in await s.page.evaluate(kept)
            assert "right" not in await s.page.content()
            await s.page.reload()
            await expect(dialog).to_be_visible()

    play(story)


HOSTILE = """<script>window.owned = 1</script> <img src=x onerror="window.owned = 1">
[click](javascript:window.owned=1) [data](data:text/html,<script>owned=1</script>)
![shown](https://evil.example/pixel.png) [ok](https://example.org/"onclick="owned=1)
<iframe src="https://evil.example"></iframe> **<b onclick=owned=1>bold</b>**

```html
</code></pre><script>window.owned = 1</script>
```

| <script>owned=1</script> | [x](vbscript:x) |
|---|---|
| <svg onload=owned=1> | &lt;script&gt; |
"""


def test_a_hostile_text_is_shown_and_executes_nothing() -> None:
    async def story() -> None:
        thought = f"<|channel|>analysis<|message|>{HOSTILE}<|end|><|start|>assistant"
        tool = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
        call = CALL.replace("I need the weather.", HOSTILE).replace(
            "Bern", "<img src=x onerror=owned=1>"
        )
        async with staged(f"{thought}{FINAL}{HOSTILE}<|return|>", call) as s:
            await ask(s.page, HOSTILE)
            await answered(s.page)
            await opened(s.page, "set")
            await s.page.fill("#tools", json.dumps([tool]))
            await ask(s.page, "Again")
            await answered(s.page, 2)
            await opened(s.page, "look")
            for tab in ("events", "explain", "sides", "copy"):
                await s.page.click(f"#tab-{tab}")
                await expect(s.page.locator("#panel")).to_contain_text(
                    "<script>" if tab != "copy" else "curl"
                )
            links = await s.page.eval_on_selector_all("a", "all => all.map(a => a.href)")
            assert {url.partition(":")[0] for url in links} <= {"http", "https"}
            made = "script:not([src='playground/main.js']), iframe, img, svg, [onerror], [onclick]"
            assert await s.page.locator(made).count() == 0
            assert await s.page.evaluate("window.owned") is None
            await expect(s.page.locator(".answer").first).to_contain_text(
                "<script>window.owned = 1"
            )

    play(story)


def test_a_line_of_a_megabyte_leaves_the_page_usable() -> None:
    async def story() -> None:
        longest = max(range(190_000), key=lambda i: len(vocabulary().token_bytes[i].strip()))
        size = len(vocabulary().token_bytes[longest])
        steps = [(longest,) * 200] * (1_000_000 // size // 200 + 1)
        async with staged(Script((ids(FINAL), *steps, ids("<|return|>"))), ANSWER) as s:
            await ask(s.page, "Much.")
            await answered(s.page)
            length = await s.page.eval_on_selector(".answer", "node => node.textContent.length")
            assert length >= 1_000_000
            await ask(s.page, "And now?")
            await answered(s.page, 2)

    play(story)


def test_nothing_of_a_string_can_become_a_script() -> None:
    async def story() -> None:
        async with staged() as s:
            html = (
                "document.body.innerHTML = '<b>x</b>'",
                "new DOMParser().parseFromString('', 'text/html')",
            )
            for source in html:
                tried = f"(() => {{ {source} }})()"
                with pytest.raises(BrowserFault, match="TrustedHTML"):
                    await s.page.evaluate(tried)
            elsewhere = "fetch('https://evil.example').then(() => 'sent', (e) => e.name)"
            assert await s.page.evaluate(elsewhere) == "TypeError"

    play(story)


def test_the_keyboard_alone_is_enough() -> None:
    async def story() -> None:
        async with staged() as s:
            await expect(s.page.locator("#ask")).to_be_focused()
            await s.page.keyboard.type("Hello")
            await s.page.keyboard.press("Shift+Enter")
            await s.page.keyboard.type("there")
            await s.page.keyboard.press("Enter")
            await answered(s.page)
            assert "Hello\nthere<|end|>" in s.prompt()
            await s.page.keyboard.press("ArrowUp")
            await expect(s.page.locator("#editing")).to_be_visible()
            assert await s.page.input_value("#ask") == "Hello\nthere"
            await s.page.keyboard.press("Escape")
            await expect(s.page.locator("#editing")).to_be_hidden()
            inside = s.page.locator(".turn").get_by_role("button", name="Inside")
            while not await inside.evaluate("node => node === document.activeElement"):
                await s.page.keyboard.press("Shift+Tab")
            await s.page.keyboard.press("Enter")
            await expect(s.page.locator("#panel")).to_be_focused()
            while not await s.page.locator("#tab-events:focus").count():
                await s.page.keyboard.press("Shift+Tab")
            await s.page.keyboard.press("ArrowRight")
            await expect(s.page.locator("#tab-explain")).to_be_focused()
            await expect(s.page.locator("#panel")).to_contain_text("Segment 1")
            await s.page.keyboard.press("Control+k")
            await s.page.keyboard.type("no such words")
            await expect(s.page.locator("#chats")).to_contain_text("Conversations appear here.")
            await s.page.keyboard.press("Control+a")
            await s.page.keyboard.type("THERE")
            await expect(s.page.locator("#chats li > button")).to_have_count(1)
            await s.page.keyboard.press("Control+b")
            await expect(s.page.locator("#past")).to_be_hidden()
            await s.page.keyboard.press("Control+Shift+O")
            await expect(s.page.locator(".turn")).to_have_count(0)
            await expect(s.page.locator("#ask")).to_be_focused()

    play(story)


PYTHON = "<|channel|>analysis to=python code<|message|>print(1)<|call|>"
TREE = f'{FINAL}{{"a": [1, {{"b": [true, null]}}]}}<|return|>'


def test_it_is_readable_on_a_phone() -> None:
    async def story() -> None:
        phone = {"viewport": {"width": 360, "height": 700}}
        kept: dict[str, Any] = {"tools": [ScriptedTool('{"a": [1, {"b": 2}]}')], "guides": None}
        async with staged(PYTHON, TREE, STORY, context=phone, **kept) as s:
            await s.page.click("#switches button")
            await ask(s.page, "Compute")
            await answered(s.page)
            await opened(s.page, "set")
            await s.page.click("#add-column")
            assert await s.page.evaluate(SMALL) == []
            await ask(s.page, "Twice")
            await expect(s.page.locator(".side .turn:not(.running)")).to_have_count(2)
            assert await s.page.evaluate("document.documentElement.scrollWidth") <= 360
            assert await s.page.evaluate(SMALL) == []
            await s.page.click("#comparing-off")
            await s.page.click("#new")
            await ask(
                s.page, "Tell me of rivers, and of a_word_that_is_longer_than_any_screen_of_a_phone"
            )
            await answered(s.page)
            for part in ("past", "set", "look"):
                await opened(s.page, part)
                wide = await s.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= 360, part
                small = await s.page.evaluate(SMALL)
                assert small == [], part

    play(story)


SMALL = """[...document.querySelectorAll("button, input, select")].filter((node) => {
  const box = node.getBoundingClientRect();
  const aimed = box.width && !["checkbox", "file"].includes(node.type);
  return aimed && (box.height < 44 || box.width < 44);
}).map((node) => node.outerHTML)"""
"""What a finger may miss."""


@pytest.mark.early(24)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(scheme: str) -> None:
    async def story() -> None:
        written = (PYTHON, TREE, ANSWER, ANSWER, STORY, CALL)
        kept: dict[str, Any] = {"tools": [ScriptedTool('{"a": [1, {"b": 2}]}')], "guides": None}
        async with staged(*written, context={"color_scheme": scheme}, **kept) as s:
            await s.page.evaluate(AXE_FILE_PATH.read_text())
            await s.page.click("#switches button")
            await ask(s.page, "Compute")
            await answered(s.page)
            await check(s.page, "tools and tree")
            await opened(s.page, "set")
            await s.page.click("#add-column")
            await check(s.page, "settings")
            await ask(s.page, "Twice")
            await expect(s.page.locator(".side .turn:not(.running)")).to_have_count(2)
            await check(s.page, "side by side")
            await s.page.click("#comparing-off")
            await s.page.click("#new")
            await check(s.page, "empty")
            await opened(s.page, "set")
            await s.page.fill("#tools", json.dumps([WEATHER]))
            for number in (1, 2):
                await ask(s.page, "Hello")
                await answered(s.page, number)
            await s.page.click(".thought summary >> nth=0")
            await opened(s.page, "look")
            for tab in ("events", "explain", "sides", "copy"):
                await s.page.click(f"#tab-{tab}")
                await expect(s.page.locator("#panel pre, #panel table").first).to_be_visible()
                await check(s.page, tab)
            await s.page.evaluate("document.getElementById('key-dialog').showModal()")
            await check(s.page, "dialog")

    play(story)


async def check(page: Page, where: str) -> None:
    found = await page.evaluate("axe.run()")
    told = [(v["id"], [n["target"] for n in v["nodes"]][:3]) for v in found["violations"]]
    assert told == [], where

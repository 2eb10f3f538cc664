"""The server's own tools on the page: switched on, shown as they run, approved; JSON as a tree."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from tests.support.boxed import no_box
from tests.support.browser import FINAL, answered, ask, needs_chromium, play, ready, staged
from tests.support.mcp_served import calling, python_and_demo
from tests.support.scripted_tool import Gate, ScriptedTool
from tests.support.served import ANSWER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.browser import Stage

pytestmark = needs_chromium

PYTHON = "<|channel|>analysis to=python code<|message|>print(6 * 7)<|call|>"
HOSTILE = '<img src=x onerror="window.owned = 1"> [x](javascript:window.owned=1)'


@asynccontextmanager
async def with_tools(
    tmp_path: Path, *written: str, python: ScriptedTool, found: str = "found", **options: Any
) -> AsyncIterator[Stage]:
    """A page whose server has a Python that is scripted, and an MCP server named demo."""
    async with (
        python_and_demo(tmp_path, python, found) as named,
        staged(*written, guides=None, **named, **options) as s,
    ):
        yield s


def test_a_tool_that_is_switched_on_is_shown_as_it_runs(tmp_path: Path) -> None:
    async def story() -> None:
        gate = Gate('{"n": 12345678901234567890, "x": "' + "é" * 3 + '"}')
        python = ScriptedTool(gate, HOSTILE)
        async with with_tools(tmp_path, ANSWER, PYTHON, f"{FINAL}42<|return|>", python=python) as s:
            switches = s.page.locator("#switches button")
            await expect(switches).to_have_text(["Python", "demo"])
            await ask(s.page, "No tools yet.")
            await answered(s.page)
            assert "# Tools" not in s.prompt()
            await switches.first.click()
            await ask(s.page, "What is 6 * 7?")
            await gate.reached.wait()
            card = s.page.locator("details.call")
            await expect(card).to_contain_text("running…")
            await expect(card.locator("code")).to_have_text("print(6 * 7)")
            gate.opened.set()
            await answered(s.page, 2)
            await expect(card.locator(".status")).to_have_text("")
            await expect(card.locator(".json-number")).to_have_text("12345678901234567890")
            await expect(s.page.locator(".answer").last).to_have_text("42")
            await s.page.reload()
            await ready(s.page)
            await expect(card.locator(".json-number")).to_have_text("12345678901234567890")
            await expect(switches.first).to_have_attribute("aria-pressed", "true")

    play(story)


def test_a_call_of_an_mcp_server_is_approved_on_the_page(tmp_path: Path) -> None:
    async def story() -> None:
        written = (calling("find", '{"q": "rivers"}'), f"{FINAL}The Aare.<|return|>")
        python = ScriptedTool("unused")
        async with with_tools(tmp_path, *written, python=python, found=HOSTILE) as s:
            await s.page.locator("#switches button", has_text="demo").click()
            await ask(s.page, "Find rivers.")
            box = s.page.get_by_label("Approval of find")
            await expect(box).to_contain_text("demo · find")
            await box.get_by_role("button", name="Approve").click()
            await answered(s.page, 2)
            await expect(box).to_contain_text("You approved it.")
            call = s.page.locator("details.call", has_text="demo · find")
            await call.locator("summary").first.press("Enter")
            await expect(call.locator("> div > pre")).to_have_text(HOSTILE)
            await expect(s.page.locator(".answer")).to_have_text("The Aare.")
            assert await s.page.evaluate("window.owned") is None

    play(story)


def test_an_answer_in_json_is_a_tree(tmp_path: Path) -> None:
    async def story() -> None:
        many = json.dumps({"rivers": [{"name": "Aare"}, {"name": HOSTILE}], "more": [*range(150)]})
        async with staged(f"{FINAL}{many}<|return|>") as s:
            await ask(s.page, "Rivers as JSON.")
            await answered(s.page)
            tree = s.page.locator(".tree")
            lists = tree.locator("summary")
            await expect(lists).to_have_text(["{2}", "rivers [2]", "more [150]"])
            assert await tree.locator("li").count() == 3
            await lists.nth(2).press("Enter")
            await expect(tree.locator(".json-number")).to_have_count(100)
            await s.page.get_by_role("button", name="50 more").press("Enter")
            await expect(tree.locator(".json-number")).to_have_count(150)
            await s.page.get_by_role("button", name="Unfold").click()
            await s.page.get_by_role("button", name="Unfold").click()
            await expect(tree.locator(".json-string")).to_have_text(['"Aare"', json.dumps(HOSTILE)])
            assert await s.page.evaluate("window.owned") is None
            await s.page.get_by_role("button", name="Text", exact=True).click()
            await expect(s.page.locator(".json pre")).to_have_text(many)
            await s.page.get_by_role("button", name="Tree", exact=True).click()
            await s.page.get_by_role("button", name="Fold", exact=True).click()
            await expect(lists.nth(1)).to_be_hidden()

    play(story)


PLOT = """<|channel|>analysis to=python code<|message|>
import base64
open('plot.png', 'wb').write(base64.b64decode('%s'))
open('note.txt', 'w').write('kept')
open('fake.png', 'w').write('<script>window.owned = 1</script>')
<|call|>"""
DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg"
    "=="
)


@pytest.mark.slow  # code runs in a process of its own
@pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")
def test_files_that_code_has_written_are_shown_and_saved(tmp_path: Path) -> None:
    async def story() -> None:
        written = (PLOT % DOT, f"{FINAL}Here it is.<|return|>")
        settings: dict[str, Any] = {"python": "boxed", "data_dir": tmp_path}
        async with staged(*written, guides=None, **settings) as s:
            await s.page.locator("#switches button").click()
            await ask(s.page, "Draw a dot.")
            await answered(s.page)
            image = s.page.get_by_alt_text("Output of the code")  # once, and not as a file again
            await expect(image).to_have_attribute("src", f"data:image/png;base64,{DOT}")
            assert await image.evaluate("node => node.decode().then(() => node.naturalWidth)") == 1
            async with s.page.expect_download() as download:
                await s.page.get_by_role("button", name="Save note.txt").click()
            assert (await (await download.value).path()).read_text() == "kept"
            assert await s.page.evaluate("window.owned") is None

    play(story)


def test_an_image_of_a_tool_is_shown_if_it_is_data_and_no_address() -> None:
    shows = """async () => {
      const { picture } = await import("./playground/items.js");
      const urls = ["data:image/png;base64,AAAA", "https://evil.example/a.png",
        "data:image/svg+xml;base64,AAAA", "data:text/html,x", "javascript:owned=1"];
      return urls.map((url) => picture(url, "x").nodeName);
    }"""

    async def story() -> None:
        async with staged() as s:
            assert await s.page.evaluate(shows) == ["IMG", "P", "P", "P", "P"]

    play(story)

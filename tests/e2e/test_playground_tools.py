"""The server's own tools on the page: switched on, shown as they run, approved; JSON as a tree."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from playwright.async_api import expect

from tests.support.browser import FINAL, answered, ask, needs_chromium, play, ready, staged
from tests.support.mcp_served import LOOPBACK, calling
from tests.support.mcp_site import mcp_site
from tests.support.scripted_tool import Gate, ScriptedTool
from tests.support.served import ANSWER, SETTINGS
from trt_responses.backends.tools import mcp_tool
from trt_responses.settings import Settings

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
    async with mcp_site() as site:
        site.results["find"] = {"content": [{"type": "text", "text": found}]}
        path = tmp_path / "servers.json"
        path.write_text(json.dumps({"demo": {"url": site.url}}))
        named = LOOPBACK | {"mcp_servers": path}
        tools = [python, mcp_tool(Settings(**SETTINGS | named))]
        async with staged(*written, tools=tools, guides=None, **named, **options) as s:
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

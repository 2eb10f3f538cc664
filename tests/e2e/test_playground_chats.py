"""Conversations on the page: kept over a reload with their branches, searched, renamed, exported,
imported and deleted; and the question that was not sent yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.support.browser import answered, ask, needs_chromium, opened, play, ready, staged

pytestmark = needs_chromium


def test_a_conversation_outlives_a_reload_with_its_branches() -> None:
    async def story() -> None:
        async with staged() as s:
            await ask(s.page, "First")
            await answered(s.page)
            await ask(s.page, "Second")
            await answered(s.page, 2)
            await s.page.locator(".turn").nth(1).get_by_role("button", name="Edit").click()
            await ask(s.page, "Other")
            await answered(s.page, 2)
            await s.page.fill("#ask", "not sent")
            await s.page.reload()
            await ready(s.page)
            assert await s.page.input_value("#ask") == "not sent"
            await expect(s.page.locator(".question p")).to_have_text(["First", "Other"])
            await s.page.get_by_role("button", name="Earlier branch").click()
            await expect(s.page.locator(".question p")).to_have_text(["First", "Second"])
            await s.page.click("#new")
            await ask(s.page, "Elsewhere")
            await answered(s.page)
            chats = s.page.locator("#chats li > button")
            await expect(chats).to_have_text(["Elsewhere", "First"])
            await s.page.fill("#search", "fir")
            await expect(chats).to_have_text(["First"])
            await chats.first.click()
            await expect(s.page.locator(".question p")).to_have_count(2)
            await s.page.get_by_role("button", name="Rename").click()
            await s.page.keyboard.press("End")
            await s.page.keyboard.type("Firsts")
            await s.page.keyboard.press("Enter")
            await expect(s.page.locator("#title")).to_have_text("FirstFirsts")
            deleted = s.page.url.partition("#")[2]
            await s.page.get_by_role("button", name="Delete").click()
            await s.page.get_by_role("button", name="Really delete?").click()
            await expect(s.page.locator(".turn")).to_have_count(0)
            await s.page.fill("#search", "")
            await expect(chats).to_have_text(["Elsewhere"])
            await s.page.fill("#open-id", deleted)
            await s.page.press("#open-id", "Enter")
            await expect(s.page.locator("#banner")).to_contain_text("not found")

    play(story)


def test_a_conversation_is_exported_and_imported(tmp_path: Path) -> None:
    async def story() -> None:
        async with staged() as s:
            await ask(s.page, "Hello")
            await answered(s.page)
            for kind in ("JSON", "Markdown"):
                async with s.page.expect_download() as download:
                    await s.page.get_by_role("button", name=kind, exact=True).click()
                await (await download.value).save_as(tmp_path / kind)
            assert "**user**\n\nHello\n" in (tmp_path / "Markdown").read_text()
            items = json.loads((tmp_path / "JSON").read_text())
            assert [item["type"] for item in items] == ["message", "message"]
            await s.page.set_input_files("#import", tmp_path / "JSON")
            await expect(s.page.locator("#title")).to_have_text("JSON")
            await ask(s.page, "And now?")
            await answered(s.page, 2)
            assert "Hello<|end|>" in s.prompt()
            assert "friend.<|end|><|start|>user<|message|>And now?" in s.prompt()
            (tmp_path / "wrong.json").write_text("{}")
            await s.page.set_input_files("#import", tmp_path / "wrong.json")
            await expect(s.page.locator("#banner")).to_contain_text("not an exported conversation")

    play(story)


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_a_text_file_becomes_part_of_the_question(way: str) -> None:
    async def story() -> None:
        async with staged() as s:
            await s.page.evaluate(
                """(way) => {
                  const files = new DataTransfer();
                  files.items.add(new File(["x = 1\\n"], "a.py", { type: "text/x-python" }));
                  files.items.add(new File(["\\0"], "b.png", { type: "image/png" }));
                  const about = { bubbles: true, dataTransfer: files, clipboardData: files };
                  const event = way === "drop" ? new DragEvent("drop", about)
                    : new ClipboardEvent("paste", about);
                  document.getElementById("ask").dispatchEvent(event);
                }""",
                way,
            )
            await expect(s.page.locator("#added")).to_have_text(
                "a.py is added. b.png is an image: this model reads text only."
            )
            await s.page.press("#ask", "Enter")
            await answered(s.page)
            assert "a.py:\n```\nx = 1\n```" in s.prompt()

    play(story)


def test_the_empty_page_offers_questions_and_a_chip_sends_one() -> None:
    async def story() -> None:
        async with staged() as s:
            await opened(s.page, "past")
            await s.page.get_by_role("button", name="What can you do?").click()
            await answered(s.page)
            assert "What can you do?<|end|>" in s.prompt()
            await expect(s.page).to_have_title("What can you do? · trt_responses")

    play(story)

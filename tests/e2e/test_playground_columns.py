"""Answers side by side, and conversations that are long."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.support.browser import answered, ask, needs_chromium, opened, play, ready, staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_chromium


def final(text: str) -> str:
    return f"<|channel|>final<|message|>{text}<|return|>"


def test_one_question_goes_to_three_models_and_on_with_one_of_them() -> None:
    written = [final(f"Answer {number}.") for number in range(1, 6)]

    async def story() -> None:
        async with staged(*written, model=("demo", "small", "large")) as s:
            await opened(s.page, "set")
            for _ in range(2):
                await s.page.click("#add-column")
            await expect(s.page.locator("#add-column")).to_be_hidden()
            await s.page.get_by_label("Model of column 3").select_option("large")
            await s.page.get_by_label("Effort of column 3").select_option("high")
            await ask(s.page, "Which is right?")
            sides = s.page.locator(".side")
            await expect(sides.locator(".turn:not(.running) footer .actions")).to_have_count(3)
            await expect(sides.locator("header b")).to_have_text(["demo", "small", "large · high"])
            await expect(sides.locator(".answer")).to_have_text(
                ["Answer 1.", "Answer 2.", "Answer 3."]
            )
            await expect(s.page.locator(".beside > .question")).to_have_text("Which is right?")
            last = sides.nth(2).get_by_role("button", name="Go on with this")
            await last.press("Enter")
            await expect(s.page.locator(".versions")).to_contain_text("3/3")
            await ask(s.page, "And then?")
            await answered(s.page, 2)
            assert "Answer 3.<|end|><|start|>user<|message|>And then?" in s.prompt()
            assert "Reasoning: high" in s.prompt()
            await s.page.get_by_role("button", name="Compare").first.click()
            await expect(sides).to_have_count(3)
            branches = s.page.locator(".branches button")
            await expect(branches).to_have_text(
                ["1: Answer 1.", "2: Answer 2.", "3: Answer 3. · 2 messages"]
            )
            await branches.nth(1).click()
            await expect(s.page.locator(".answer")).to_have_text("Answer 2.")
            await s.page.reload()
            await ready(s.page)
            await expect(s.page.locator(".versions")).to_contain_text("2/3")

    play(story)


RICH = (
    "## Title\n\n" + "A *text* that fills lines. " * 12 + "\n\n```python\nx = [1]\n```\n\n- a\n- b"
)


def test_a_long_conversation_opens_at_its_end_and_shows_the_rest_above_it(tmp_path: Path) -> None:
    items = [
        {"type": "message", "role": role, "content": text}
        for number in range(1, 231)
        for role, text in (("user", f"Question {number}"), ("assistant", RICH))
    ]
    path = tmp_path / "long.json"
    path.write_text(json.dumps(items))

    async def story() -> None:
        async with staged() as s:
            await s.page.set_input_files("#import", path)
            questions = s.page.locator(".question p")
            await expect(questions.last).to_have_text("Question 230")
            await expect(questions.first).to_have_text("Question 31")
            await expect(questions.last).to_be_in_viewport()
            await expect(s.page.locator(".turn footer button", has_text="Retry")).to_have_count(200)
            await s.page.evaluate("document.getElementById('turns').scrollTop = 0")
            await expect(s.page.locator("#to-end")).to_be_visible()
            await s.page.get_by_role("button", name="Show 30 earlier messages").click()
            await expect(questions).to_have_count(230)
            await expect(questions.nth(30)).to_be_in_viewport()
            await s.page.click("#to-end")
            await expect(questions.last).to_be_in_viewport()
            await ask(s.page, "And now?")
            await answered(s.page, 231)
            assert "Question 230<|end|>" in s.prompt()

    play(story)

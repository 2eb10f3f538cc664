"""The page at `/` in a real browser, used as a person would use it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

from playwright.async_api import expect

from tests.support.asgi import until
from tests.support.browser import (
    FINAL,
    STORY,
    answered,
    ask,
    browsing,
    needs_chromium,
    opened,
    play,
    ready,
    staged,
)
from tests.support.scripted.engine import Script, ScriptedEngine, Stall
from tests.support.served import ANSWER, CALL, SETTINGS, WEATHER, ids, script
from tests.support.serving import serving
from trt_responses.app import create_app
from trt_responses.settings import Settings

pytestmark = needs_chromium


def test_an_answer_streams_with_its_thought_folded_above_it() -> None:
    async def story() -> None:
        async with staged(STORY, manual=True) as s:
            await ask(s.page, "Tell me of rivers.")
            await s.asked(1)
            await s.engine.clock.step(12)
            await expect(s.page.locator(".turn .status")).to_have_text("writing…")
            await expect(s.page.locator(".thought")).to_contain_text("They want")
            await s.engine.clock.step(200)
            await answered(s.page)
            thought = s.page.locator("details.thought")
            assert await thought.get_attribute("open") is None
            await expect(thought.locator("summary")).to_contain_text("Thought, ")
            answer = s.page.locator(".answer")
            await expect(answer.locator("h3")).to_have_text("Rivers")
            await expect(answer.locator("strong")).to_have_text("Aare")
            await expect(answer.locator("li")).to_have_text(["one", "two"])
            await expect(answer.locator("pre code")).to_have_text("print('hi')")
            await expect(answer.locator("td")).to_have_text(["1", "2"])
            link = answer.locator("a")
            assert await link.get_attribute("href") == "https://example.org/aare"
            assert "noopener" in (await link.get_attribute("rel") or "")
            await expect(s.page.locator(".turn footer")).to_contain_text("% cached")

    play(story)


def test_stop_ends_the_response_and_the_chat_goes_on_with_what_was_said() -> None:
    async def story() -> None:
        held = script(f"{FINAL}Once upon a", Stall())
        async with staged(held, ANSWER) as s:
            await ask(s.page, "A tale!")
            await expect(s.page.locator(".answer")).to_contain_text("Once upon a")
            await s.page.click("#stop")
            await expect(s.page.locator(".turn .status")).to_have_text("stopped")
            await until(lambda: s.engine.requests[0].state == "aborted")
            await ask(s.page, "Go on.")
            await answered(s.page, 2)
            assert (
                "A tale!<|end|><|start|>assistant<|channel|>final<|message|>Once upon a"
                in s.prompt()
            )
            assert s.prompt().endswith("Go on.<|end|><|start|>assistant")

    play(story)


def test_an_edited_question_is_a_branch_beside_the_first() -> None:
    async def story() -> None:
        async with staged() as s:
            await ask(s.page, "First")
            await answered(s.page)
            await ask(s.page, "Second")
            await answered(s.page, 2)
            await s.page.locator(".turn").nth(1).get_by_role("button", name="Edit").click()
            await ask(s.page, "Other second")
            await answered(s.page, 2)
            await s.asked(3)
            assert "First<|end|>" in s.prompt()
            assert ">Second<" not in s.prompt()
            second = s.page.locator(".turn").nth(1)
            await expect(second.locator(".versions")).to_contain_text("2/2")
            await second.get_by_role("button", name="Earlier branch").click()
            await expect(s.page.locator(".question p")).to_have_text(["First", "Second"])
            await s.page.locator(".turn").nth(0).get_by_role("button", name="Branch").click()
            await ask(s.page, "Third way")
            await answered(s.page, 2)
            await expect(s.page.locator(".question p")).to_have_text(["First", "Third way"])
            await s.page.locator(".turn").nth(1).get_by_role("button", name="Retry").click()
            await expect(s.page.locator(".turn").nth(1).locator(".versions")).to_contain_text("4/4")

    play(story)


def test_a_call_is_answered_by_hand() -> None:
    async def story() -> None:
        async with staged(CALL, ANSWER) as s:
            await opened(s.page, "set")
            await s.page.fill("#tools", json.dumps([WEATHER]))
            await ask(s.page, "Weather?")
            card = s.page.locator(".call")
            await expect(card.locator("h3")).to_contain_text("weather")
            await expect(card.locator("pre").first).to_contain_text('"city": "Bern"')
            await card.locator("textarea").fill("Snow.")
            await card.get_by_role("button", name="Send the result").click()
            await answered(s.page, 2)
            assert (
                "functions.weather to=assistant<|channel|>commentary<|message|>Snow." in s.prompt()
            )
            await expect(card.locator(".result pre")).to_have_text("Snow.")
            await expect(s.page.locator(".answer")).to_have_text("Hello there, friend.")

    play(story)


def test_a_background_run_is_resumed_by_a_page_that_is_loaded_anew() -> None:
    async def story() -> None:
        words = Script(tuple((i,) for i in ids(f"{FINAL}One two three four five.<|return|>")))
        async with staged(words, manual=True) as s:
            await ask(s.page, "Count.")
            await s.asked(1)
            await s.engine.clock.step(6)
            await expect(s.page.locator(".answer")).to_contain_text("One two")
            await s.page.reload()
            await ready(s.page)
            await expect(s.page.locator(".answer")).to_contain_text("One two")
            await s.engine.clock.step(20)
            await answered(s.page)
            await expect(s.page.locator(".answer")).to_have_text("One two three four five.")
            await s.page.reload()
            await ready(s.page)
            await expect(s.page.locator(".question p")).to_have_text("Count.")
            await expect(s.page.locator(".answer")).to_have_text("One two three four five.")

    play(story)


def test_a_background_run_is_cancelled_at_the_server() -> None:
    async def story() -> None:
        async with staged(script(f"{FINAL}Hold on", Stall())) as s:
            await opened(s.page, "set")
            await s.page.check("#background")
            await ask(s.page, "Wait.")
            await expect(s.page.locator(".answer")).to_contain_text("Hold on")
            await s.page.click("#stop")
            await expect(s.page.locator(".turn .status")).to_have_text("stopped")

    play(story)


def test_a_question_is_shown_as_running_from_its_first_moment() -> None:
    """Else the next one could be typed behind it, and would not be sent."""
    asks = """() => {
        const box = document.getElementById("ask");
        box.value = "Hello";
        box.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
        return document.querySelector(".turn").className;
    }"""

    async def story() -> None:
        async with staged() as s:
            assert await s.page.evaluate(asks) == "turn running"
            await answered(s.page)

    play(story)


def test_an_end_that_the_server_has_told_stands_when_the_page_hangs_up() -> None:
    """The stream of a cancelled response may still be open when the cancel is answered."""
    hangs_up = """async () => {
        const { Turn } = await import("./playground/turn.js");
        const ends = ["cancelled", "in_progress"].map((status) => {
            const turn = new Turn(null, []);
            turn.settle({ id: "resp_1", status, output: [] });
            turn.stop();
            return turn.status;
        });
        return ends;
    }"""

    async def story() -> None:
        async with staged() as s:
            assert await s.page.evaluate(hangs_up) == ["cancelled", "stopped"]

    play(story)


def test_a_response_is_opened_by_its_id_with_those_before_it() -> None:
    async def story() -> None:
        async with staged() as s:
            for number, text in enumerate(("First", "Second"), 1):
                await ask(s.page, text)
                await answered(s.page, number)
            last = s.page.url.partition("#")[2]
            await s.page.click("#new")
            await expect(s.page.locator(".turn")).to_have_count(0)
            await s.page.reload()
            await ready(s.page)
            await s.page.fill("#open-id", last)
            await s.page.press("#open-id", "Enter")
            await expect(s.page.locator(".question p")).to_have_text(["First", "Second"])
            await s.page.fill("#open-id", "resp_nothing")
            await s.page.press("#open-id", "Enter")
            await expect(s.page.locator("#banner")).to_contain_text("not found")

    play(story)


def test_a_server_that_goes_and_comes_back_is_told_in_words() -> None:
    async def story() -> None:
        def app() -> Any:
            return create_app(Settings(**SETTINGS), engine=ScriptedEngine([script(ANSWER)]))

        async with browsing("about:blank") as (page, _):
            async with serving(app()) as address:
                await page.goto(address.url)
                await ready(page)
            await ask(page, "Anybody?")
            await expect(page.locator("#banner")).to_contain_text("does not answer")
            await expect(page.locator(".turn .fault")).to_contain_text("does not answer")
            async with serving(app(), port=address.port):
                await expect(page.locator("#banner")).to_be_hidden()
                await page.get_by_role("button", name="Retry").click()
                await answered(page)
                await expect(page.locator(".answer")).to_have_text("Hello there, friend.")

    play(story)


def test_a_steered_response_is_explained_with_its_control_ids_and_forced_ids() -> None:
    async def story() -> None:
        async with staged("It is true.<|end|>", "true<|endoftext|>") as s:
            await opened(s.page, "set")
            await s.page.fill("#schema", '{"type": "boolean"}')
            await ask(s.page, "Is it?")
            await answered(s.page)
            await opened(s.page, "look")
            await s.page.click("#tab-explain")
            panel = s.page.locator("#panel")
            await expect(panel.locator(".control").first).to_have_text("<|start|>")
            await expect(panel.locator(".forced").first).to_have_text("analysis")
            await expect(panel).to_contain_text("Segment 2: body")
            await expect(panel).to_contain_text("ended by <|endoftext|>")
            await s.page.check("#panel input[type=checkbox]")
            await s.page.get_by_role("button", name="Write a test of this response").click()
            await expect(panel).to_contain_text('"name": "seen_on_the_page"')

    play(story)


def test_events_are_told_with_times_and_numbers_and_the_three_sides_agree() -> None:
    async def story() -> None:
        async with staged() as s:
            await ask(s.page, "Hello")
            await answered(s.page)
            await opened(s.page, "look")
            rows = s.page.locator("#panel tbody tr")
            await expect(rows.first).to_contain_text("created")
            await expect(rows.last).to_contain_text("completed")
            await s.page.get_by_role("button", name="output_text.delta").click()
            await expect(s.page.locator("#panel .brief", has_text="Hello")).not_to_have_count(0)
            await opened(s.page, "look")
            await s.page.click("#tab-sides")
            panel = s.page.locator("#panel")
            await expect(panel.locator(".sides section")).to_have_count(2)
            await expect(panel.locator(".differs")).to_have_count(0)
            await s.page.get_by_role("button", name="Repeat without streaming").click()
            await expect(panel.locator(".sides section")).to_have_count(3)
            await expect(
                panel.locator("section", has_text="plain").locator(".differs")
            ).not_to_have_count(0)

    play(story)


def test_what_is_copied_as_curl_asks_the_same() -> None:
    async def story() -> None:
        async with staged() as s:
            await opened(s.page, "set")
            await s.page.fill("#instructions", 'Don\'t say "no".')
            await ask(s.page, "It's me; $HOME `id`")
            await answered(s.page)
            await opened(s.page, "look")
            await s.page.click("#tab-copy")
            programs = await s.page.locator("#panel pre").all_text_contents()
            shown = await asyncio.to_thread(
                subprocess.run, ["bash", "-c", programs[0]], capture_output=True, check=True
            )
            assert b"event: response.completed" in shown.stdout
            assert s.prompt(0) == s.prompt(1)
            compile(programs[1], "copied.py", "exec")

    play(story)


def test_faults_are_told_in_words_where_they_are() -> None:
    async def story() -> None:
        async with staged() as s:
            await opened(s.page, "set")
            await s.page.fill("#tools", "[{")
            await ask(s.page, "Hello")
            await expect(s.page.locator("#settings-fault")).to_contain_text("is not valid JSON")
            await s.page.fill("#tools", "")
            await s.page.fill("#temperature", "9")
            await ask(s.page, "Hello")
            await expect(s.page.locator(".turn .fault")).to_contain_text("temperature")
            s.engine.kill("burnt out")
            await opened(s.page, "set")
            await s.page.fill("#temperature", "")
            await ask(s.page, "Hello?")
            await expect(s.page.locator(".turn .fault").last).to_contain_text("not ready")

    play(story)

"""What an engine's card says of its model, where a person begins: on the page and in `chat`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.support.browser import ask, browsing, needs_chromium, play, ready
from tests.support.cards import app_of_a_card
from tests.support.serving import serving
from tests.support.tmux import needs_tmux, terminal

if TYPE_CHECKING:
    from pathlib import Path

NOTE = "A toy: it shows what the server does."


@needs_chromium
def test_the_empty_page_shows_the_note_until_the_first_question(tmp_path: Path) -> None:
    async def story() -> None:
        app, _ = app_of_a_card(tmp_path, note=NOTE)
        async with serving(app) as address, browsing(address.url) as (page, seen):
            await ready(page)
            await expect(page.locator("#note")).to_have_text(NOTE)
            await ask(page, "Hello")
            await expect(page.locator("#note")).to_have_count(0)
            assert seen.faults == []

    play(story)


@needs_tmux
def test_chat_greets_with_the_note_once(tmp_path: Path) -> None:
    async def story() -> None:
        app, _ = app_of_a_card(tmp_path / "engines", note=NOTE)
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": str(tmp_path)}
        command = (sys.executable, "-m", "trt_responses", "chat", "--url")
        async with (
            serving(app) as address,
            terminal((*command, f"{address.url}/v1"), tmp_path, environment) as screen,
        ):
            await screen.shows(NOTE)
            await screen.line("Hello")
            shown = await screen.shows("tokens/s")
            assert shown.count(NOTE) == 1

    play(story)

"""What the page does when a stream breaks: it goes on by itself, or says what is lost."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect

from tests.support.browser import (
    FINAL,
    answered,
    ask,
    browsing,
    needs_chromium,
    play,
    ready,
    staged,
)
from tests.support.cut_proxy import cut_proxy
from tests.support.paced_server import TEXT
from tests.support.scripted.engine import Script
from tests.support.served import ANSWER, ids
from tests.support.server_processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.async_api import Route

    from tests.support.browser import Stage

pytestmark = needs_chromium

COUNT = Script(tuple((i,) for i in ids(f"{FINAL}One two three four five.<|return|>")))
HALF = len(ids(f"{FINAL}One two"))


async def half_way(stage: Stage) -> None:
    """So many ids are made, however long the page takes to show them."""
    await ask(stage.page, "Count.")
    await stage.asked(1)
    await stage.engine.clock.step(HALF)
    await expect(stage.page.locator(".answer")).to_contain_text("One")


def test_a_stream_that_is_cut_goes_on_by_itself() -> None:
    async def story() -> None:
        async with staged(COUNT, manual=True) as s, cut_proxy(s.address.port) as proxy:
            await s.page.goto(f"http://127.0.0.1:{proxy.port}")
            await ready(s.page)
            await half_way(s)
            for steps in (3, 20):
                proxy.cut()
                await s.engine.clock.step(steps)
            await answered(s.page)
            await expect(s.page.locator(".answer")).to_have_text("One two three four five.")
            await expect(s.page.locator(".turn .status")).to_have_text("")
            s.seen.hosts.clear()
            s.seen.hosts.add(f"{s.address.host}:{s.address.port}")

    play(story)


def test_what_has_come_stays_where_the_server_cannot_give_the_rest() -> None:
    """Its server has no background responses, so a run ends with its connection."""

    async def refuse(route: Route) -> None:
        error = {"message": "not installed here", "param": "background", "code": None}
        if '"background":true' in (route.request.post_data or ""):
            await route.fulfill(status=400, json={"error": error})
        else:
            await route.continue_()

    async def story() -> None:
        async with staged(COUNT, ANSWER, manual=True) as s:
            await s.page.route("**/v1/responses", refuse)
            await half_way(s)
            await s.page.evaluate("stop()")  # as a network that is gone
            await answered(s.page)
            await expect(s.page.locator(".turn .fault")).to_contain_text("does not have the rest")
            await expect(s.page.locator(".answer")).to_contain_text("One")

    play(story)


@contextmanager
def process(store: str) -> Iterator[tuple[int, Callable[[], None]]]:
    """A server on a store: its port, and what kills it."""
    command = [sys.executable, "-m", "tests.support.paced_server", store]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield int(running.stdout.readline()), running.kill
        finally:
            running.kill()


@pytest.mark.slow  # two servers that load
def test_an_answer_goes_on_when_its_server_was_killed_and_another_one_took_over(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path / 'history.db'}"

    async def story() -> None:
        with process(store) as (port, kill):
            async with (
                cut_proxy(port) as proxy,
                browsing(f"http://127.0.0.1:{proxy.port}") as (page, _),
            ):
                await ready(page)
                await ask(page, "Count.")
                await expect(page.locator(".answer")).to_contain_text("20")
                kill()
                await expect(page.locator("#banner")).to_contain_text("does not answer")
                await expect(page.locator(".turn .status")).to_contain_text("connection broke")
                with process(store) as (proxy.target, _):
                    await answered(page)
                    await expect(page.locator(".answer")).to_have_text(TEXT.strip())

    play(story)

"""The browser against hostile sites: each is refused or bounded, and the model is told."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import until
from tests.support.boxed import no_box
from tests.support.paper_web import Service
from tests.support.processes import children_of
from tests.support.small_site import Page, drip, endless_gzip, redirect, site_of
from tests.support.story import story
from trt_responses.tool import Opening, ToolAnswer, ToolCall
from trt_responses.tools.browser.reading import Reading
from trt_responses.tools.browser.tool import BrowserTool
from trt_responses.tools.fetch_guard import Bounds, Reach

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.small_site import Site

pytestmark = pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}")


@asynccontextmanager
async def browser(
    site: Site, bounds: Bounds | None = None, reading: Reading | None = None
) -> AsyncIterator[BrowserTool]:
    reach = Reach((ip_network("127.0.0.1"),))
    tool = BrowserTool(Service(), reach, bounds or Bounds(), reading or Reading(deadline_s=60))
    await tool.start()
    try:
        yield tool
    finally:
        await tool.stop()


async def opened(tool: BrowserTool, url: str, **more: object) -> ToolAnswer:
    session = await tool.open(Opening("ann", messages=lambda: (url,)))
    return await session.call(
        ToolCall(json.dumps({"id": url, **more}), "json", "functions.browser.open")
    )


REFUSED = {
    "a port": (redirect("http://1.1.1.1:1/"), "port 1 is not opened"),
    "a file": (redirect("file:///etc/passwd"), "only http and https URLs are opened"),
    "round and round": (redirect("/"), "it redirects more than 5 times"),
    "a drip": (drip(b"<p>x"), "it did not arrive within 1 seconds"),
    "a PDF": (Page(b"%PDF", "application/pdf"), "documents of the type 'application/pdf'"),
    "an error": (Page(status=503), "the site answered with status 503"),
    "deep": (Page(b"<div>" * 200_000), "it could not be read within 2 seconds"),
}


@pytest.mark.parametrize(("page", "told"), REFUSED.values(), ids=REFUSED)
@story
async def test_a_hostile_site_is_refused_and_the_model_is_told(page: Page, told: str) -> None:
    reading = Reading(deadline_s=2) if b"<div>" in page.body else None
    bounds = Bounds(deadline_s=1) if page.writes is not None else None
    async with site_of({"/": page}) as site, browser(site, bounds, reading) as tool:
        answer = await opened(tool, site.url())
    assert answer.failed
    assert answer.text.startswith(f"Error fetching URL `{site.url()}`: {told}")


@story
async def test_a_redirect_to_a_metadata_address_is_refused_and_the_model_is_told() -> None:
    async with site_of({}) as site, browser(site) as tool:
        site.pages["/"] = redirect(site.url("/latest", "169.254.169.254"))
        answer = await opened(tool, site.url())
    assert answer.failed
    assert "169.254.169.254 is not a public address" in answer.text


@story
async def test_gzip_without_end_is_cut_and_the_model_is_told() -> None:
    page = endless_gzip()
    page = page._replace(content_type="text/plain")
    async with site_of({"/": page}) as site, browser(site, Bounds(max_bytes=5000)) as tool:
        answer = await opened(tool, site.url(), num_lines=100_000)
    assert not answer.failed
    assert "[The page is longer than what is read of one" in answer.text


@story
async def test_the_source_of_a_page_is_its_text() -> None:
    async with site_of({"/": Page(b"<p hidden>x</p>")}) as site, browser(site) as tool:
        assert "<p hidden>x</p>" in (await opened(tool, site.url(), view_source=True)).text
        assert "<p hidden>" not in (await opened(tool, site.url())).text


@story
async def test_a_call_that_is_cancelled_leaves_no_process() -> None:
    async with site_of({"/": Page(b"<div>" * 300_000)}) as site, browser(site) as tool:
        before = set(children_of(os.getpid()))
        calling = asyncio.create_task(opened(tool, site.url()))
        await until(lambda: bool(set(children_of(os.getpid())) - before))
        calling.cancel()
        await asyncio.wait((calling,))
        assert set(children_of(os.getpid())) <= before

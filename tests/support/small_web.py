"""A small web on loopback: a search service, and the pages that it finds."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson

from tests.support.small_site import Page, site_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.small_site import Asked, Site

CATS = (
    b"<html><head><title>All about cats</title></head><body><h1>Cats</h1><p>Cats sleep sixteen "
    b"hours a day.</p><p>See <a href='/dogs'>dogs</a>.</p></body></html>"
)
DOGS = b"<html><title>Dogs</title><body><p>Dogs bark.</p></body></html>"


@asynccontextmanager
async def small_web(**pages: Page) -> AsyncIterator[Site]:
    """`/search` finds `/cats` and `/elsewhere`; further pages by their names."""

    def search(asked: Asked) -> Page:
        host = site.url("").removeprefix("http://")
        found = [
            {
                "url": f"http://{host}/cats",
                "title": "All about <b>cats</b>",
                "content": f"{asked.query['q'][0]}: they sleep &amp; purr 【9†L9】",
            },
            {"url": f"http://localhost:{site.port}/elsewhere", "title": "Else", "content": "x"},
            {"url": "javascript:alert(1)", "title": "no", "content": "no"},
        ]
        return Page(orjson.dumps({"results": found}), "application/json")

    named: dict[str, Any] = {f"/{name}": page for name, page in pages.items()}
    fixed: dict[str, Any] = {"/cats": Page(CATS), "/dogs": Page(DOGS), "/search": search}
    async with site_of(fixed | named) as site:
        yield site


def settings_for(site: Site, **changes: Any) -> dict[str, Any]:
    """A server that searches there, and may open its pages."""
    return {
        "browser": "boxed",
        "search_url": site.url(""),
        "private_networks": ("127.0.0.1",),
        **changes,
    }


def calling(name: str, arguments: str) -> str:
    """A thought, and a call of the browser."""
    return (
        "<|channel|>analysis<|message|>I will look.<|end|><|start|>assistant"
        f"<|channel|>analysis to=browser.{name} code<|message|>{arguments}<|call|>"
    )


def answering(text: str) -> str:
    return f"<|channel|>final<|message|>{text}<|return|>"

"""What answers at `/`: a page for browsers, JSON for clients, and the files of the page."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import JSON
from tests.support.served import served
from trt_responses.apis.playground.endpoint import FOLDER, KINDS

if TYPE_CHECKING:
    from pathlib import Path

BROWSER = JSON | {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SOURCES = sorted(FOLDER.iterdir())


def test_a_browser_gets_the_page_and_a_client_json() -> None:
    async def story() -> None:
        async with served(allowed_origins="https://app.example") as s:
            page = await s.client.send("GET", "/", b"", BROWSER)
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert page.body == (FOLDER / "index.html").read_bytes()
            assert page.headers["vary"] == "Origin, Accept"
            for accept in ({}, {"accept": "*/*"}, {"accept": "application/json"}):
                told = await s.client.send("GET", "/", b"", JSON | accept)
                assert told.json()["responses"] == "/v1/responses"
            assert (await s.client.send("HEAD", "/", b"", BROWSER)).status == 200

    asyncio.run(story())


def test_the_page_needs_no_key_and_says_what_a_browser_may_do() -> None:
    async def story() -> None:
        async with served(api_keys="ann:a1") as s:
            for path in ("/", *(f"/playground/{source.name}" for source in SOURCES)):
                if path == "/playground/index.html":
                    continue
                reply = await s.client.send("GET", path, b"", BROWSER)
                assert reply.status == 200, path
                policy = reply.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy
                assert reply.headers["x-content-type-options"] == "nosniff"

    asyncio.run(story())


@pytest.mark.parametrize(
    "path", ["index.html", "nothing.js", "..%2fplayground.py", "%2e%2e/playground.py", ""]
)
def test_nothing_else_is_a_file_of_the_page(path: str) -> None:
    async def story() -> None:
        async with served() as s:
            assert (await s.client.get(f"/playground/{path}")).status == 404

    asyncio.run(story())


def test_a_setting_turns_it_off() -> None:
    async def story() -> None:
        async with served(playground=False) as s:
            assert (await s.client.send("GET", "/", b"", BROWSER)).json()["docs"] == "/docs"
            assert (await s.client.get("/playground/main.js")).status == 404

    asyncio.run(story())


def named(text: str) -> set[str]:
    """Files of the page that one of them names."""
    return set(re.findall(r'(?:from "\./|import\("\./|playground/)([\w.-]+)"', text))


def test_every_file_is_served_and_every_file_that_is_named_is_there() -> None:
    assert {source.suffix for source in SOURCES} <= set(KINDS)
    found = {name for source in SOURCES for name in named(source.read_text())}
    assert found == {source.name for source in SOURCES} - {"index.html"}


OWN = [source for source in SOURCES if not source.name.startswith("vendor-")]
STORAGE = r"localStorage|sessionStorage"


@pytest.mark.parametrize("source", OWN, ids=lambda source: source.name)
def test_no_file_loads_from_elsewhere_or_makes_html_of_a_string(source: Path) -> None:
    text = source.read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", " style="):
        assert word not in text
    assert re.findall(r"@import|\burl\(|src=\"(?!playground/)", text) == []
    makes_html = r"(?<!katex)\.render\(|renderToString|highlight(?:Element|All)\("
    assert re.findall(makes_html, text) == []


def test_storage_is_reached_in_one_place_and_not_by_what_holds_the_key() -> None:
    assert [source.name for source in OWN if re.search(STORAGE, source.read_text())] == ["dom.js"]
    for name in ("api.js", "server.js"):
        assert not re.search(r"\b(kept|visit)\.[gs]et\(", (FOLDER / name).read_text())

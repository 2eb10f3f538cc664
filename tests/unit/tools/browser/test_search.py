"""Search services: what they are asked, and what is taken of what they answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.small_site import Page, endless_gzip, redirect, site_of
from tests.support.story import story
from trt_responses.backends.tools import tools_of
from trt_responses.errors import StartupError
from trt_responses.settings import Settings
from trt_responses.tools.browser.search import Brave, Query, Result, SearchFailed, SearXNG
from trt_responses.tools.browser.tool import ignored_options

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = [
    {"url": "https://a.test/", "title": "A <b>&amp;</b> B", "content": "1 &lt; 2"},
    {"url": "https://b.test/", "title": None, "content": None},
    *({"url": url} for url in (None, 5, "javascript:x", "file:///x", "http://a b/", "http://[a")),
    *({"url": f"http://{rest}"} for rest in ("a\u2100b/", "a:99999/", "a/\n", "a/" + "b" * 5000)),
    "rubbish",
    None,
]
TAKEN = [Result("https://a.test/", "A & B", "1 < 2"), Result("https://b.test/", "", "")]


def page(answer: Any) -> Page:
    return Page(orjson.dumps(answer), "application/json")


@story
async def test_searxng() -> None:
    async with site_of({"/base/search": page({"results": ROWS})}) as site:
        service = SearXNG(site.url("/base/"), "a-key", 5)
        domains = ("a.test", "b.test")
        assert await service.results(Query("cats & dogs", 3, domains, "CH")) == TAKEN
        await service.close()
    (asked,) = site.asked
    assert asked.query == {
        "q": ["cats & dogs (site:a.test OR site:b.test)"],
        "format": ["json"],
    }
    assert asked.headers["authorization"] == "Bearer a-key"


@story
async def test_brave() -> None:
    rows = [{"url": "https://a.test/", "title": "A", "description": "x", "extra_snippets": ["y"]}]
    answer = page({"web": {"results": rows}})
    async with site_of({"/res/v1/web/search": answer}) as site:
        service = Brave(site.url(""), "a-key", 5)
        assert await service.results(Query("q", 50, (), "CH")) == [
            Result("https://a.test/", "A", "x y")
        ]
        await service.close()
    (asked,) = site.asked
    assert asked.query == {"q": ["q"], "count": ["20"], "country": ["CH"]}
    assert asked.headers["x-subscription-token"] == "a-key"


FAULTS: dict[str, tuple[Callable[[], Page], str]] = {
    "not allowed": (lambda: Page(status=403), "the service answered 403"),
    "a redirect": (lambda: redirect("http://127.0.0.1:1/"), "the service answered 302"),
    "no JSON": (lambda: Page(b"<html>"), "the service did not answer in JSON"),
    "nested": (lambda: Page(b"[" * 100_000), "the service did not answer in JSON"),
    "endless": (endless_gzip, "the service's answer is too large"),
}


@pytest.mark.parametrize(("answer", "told"), FAULTS.values(), ids=FAULTS)
@story
async def test_a_service_that_does_not_answer(answer: Callable[[], Page], told: str) -> None:
    async with site_of({"/search": answer()}) as site:
        service = SearXNG(site.url(""), None, 20)
        with pytest.raises(SearchFailed, match=told):
            await service.results(Query("q", 3))
        await service.close()


@pytest.mark.parametrize("length", [5_000, 100_000])
@story
async def test_a_query_that_is_too_long_is_said(length: int) -> None:
    service = SearXNG("http://127.0.0.1:1", None, 5)
    with pytest.raises(SearchFailed, match=r"URL is longer than 4096|too long"):
        await service.results(Query("q" * length, 3))
    await service.close()


@pytest.mark.parametrize("answer", [{}, [], None, "x", {"results": {}}, {"results": [[], 1]}])
@story
async def test_an_answer_of_another_shape_has_no_results(answer: Any) -> None:
    async with site_of({"/search": page(answer)}) as site:
        service = SearXNG(site.url(""), None, 5)
        assert await service.results(Query("q", 3)) == []
        await service.close()


FAULTY: list[tuple[dict[str, Any], str]] = [
    ({}, "SEARCH_URL"),
    ({"search_url": "brave"}, "SEARCH_KEY"),
]


@pytest.mark.parametrize(("settings", "named"), FAULTY, ids=lambda value: str(value)[:40])
def test_settings_that_cannot_be_are_named_at_the_start(
    settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(StartupError, match=f"TRT_RESPONSES_{named}"):
        tools_of(Settings(browser="boxed", **settings))


def test_a_browser_is_made_where_it_is_switched_on() -> None:
    settings = Settings(browser="boxed", search_url="brave", search_key="k")
    assert [tool.kind for tool in tools_of(settings)] == ["web_search"]
    assert tools_of(Settings()) == []


def test_what_a_service_is_not_told_of_a_location_is_named() -> None:
    location = {"type": "approximate", "country": "CH", "city": "Bern", "region": None}
    options = {"user_location": location}
    brave, searxng = Brave("http://b.test", "k", 1.0), SearXNG("http://s.test", None, 1.0)
    assert ignored_options(options, brave) == ["user_location.city"]
    assert ignored_options(options, searxng) == ["user_location.country", "user_location.city"]
    assert ignored_options({}, searxng) == []

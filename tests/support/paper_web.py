"""A browser over a web of paper: real sessions, and pages that need no fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2

from trt_responses.tools.browser.page import Page
from trt_responses.tools.browser.results import shown_before
from trt_responses.tools.browser.search import Result, SearchFailed
from trt_responses.tools.browser.session import BrowserSession
from trt_responses.tools.browser.texts import DESCRIPTION, FUNCTIONS
from trt_responses.tools.browser.tool import ignored_options, search_options, seen_before
from trt_responses.tools.browser.urls import Seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.tool import Opening
    from trt_responses.tools.browser.search import Query
    from trt_responses.tools.fetch_guard import Permit

FOUND = [
    Result("https://a.test/one", "One", "the first 【2†L2】"),
    Result("https://sub.b.test/two", "Two†", "the second"),
]


class Service:
    knows_country = True

    def __init__(self, *answers: list[Result] | SearchFailed) -> None:
        self.answers = list(answers)
        self.asked: list[Query] = []

    async def results(self, query: Query) -> list[Result]:
        self.asked.append(query)
        answer = self.answers.pop(0) if self.answers else FOUND
        if isinstance(answer, SearchFailed):
            raise answer
        return answer

    async def close(self) -> None: ...


class Web:
    """Every URL is a page of 100 lines with a link to `/next`; `redirects` lead elsewhere."""

    def __init__(self, **redirects: str) -> None:
        self.fetched: list[str] = []
        self.redirects = redirects

    async def __call__(self, url: str, permit: Permit, *, source: bool) -> Page:
        self.fetched.append(url)
        for one in (url, self.redirects.get(httpx2.URL(url).path.strip("/"))):
            if one is not None and (why := permit(httpx2.URL(one))) is not None:
                raise httpx2.ConnectError(why)
        lines = tuple(f"line {number} of {url}" for number in range(100))
        return Page(url, f"Title of {url}", lines, ("https://a.test/next",))


class AnyUrl(Seen):
    """Has every URL."""

    def __contains__(self, url: str) -> bool:
        return True


class PaperBrowser:
    kind = "web_search"
    name = "browser"
    recipients = ("browser.search", "browser.open", "browser.find")
    description = DESCRIPTION
    functions = FUNCTIONS
    containers = None
    deadline_s = 5.0

    def __init__(self, service: Service | None = None, *, only_seen: bool = False) -> None:
        self.service = service or Service()
        self.web = Web()
        self._only_seen = only_seen

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def ignored(self, options: Mapping[str, Any]) -> list[str]:
        return ignored_options(options, self.service)

    async def open(self, opening: Opening) -> BrowserSession:
        pages = shown_before(opening.answers())
        seen = seen_before(opening) if self._only_seen else AnyUrl()
        return BrowserSession(self.web, self.service, search_options(opening.options), pages, seen)

"""The tool `web_search`: a browser that searches, opens pages and finds text in them.

Combines search services, the fetch guard and the document parser. No Harmony, no API items and no
HTTP server here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trt_responses.errors import StartupError
from trt_responses.tools.browser.parser import HTML
from trt_responses.tools.browser.reading import Reader, Unreadable
from trt_responses.tools.browser.results import shown_before
from trt_responses.tools.browser.search import usable
from trt_responses.tools.browser.session import BrowserSession, SearchOptions
from trt_responses.tools.browser.texts import DESCRIPTION, FUNCTIONS
from trt_responses.tools.browser.urls import Seen, urls_in
from trt_responses.tools.fetch_guard import Document, Fetcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trt_responses.tool import Opening
    from trt_responses.tools.browser.page import Page
    from trt_responses.tools.browser.reading import Reading
    from trt_responses.tools.browser.search import SearchService
    from trt_responses.tools.fetch_guard import Bounds, Permit, Reach

WINDOWS = {"low": 512, "medium": 1024, "high": 2048}
"""Tokens of a page per display, by `search_context_size`."""
TEXTUAL = (*HTML, "application/json", "application/xml", "application/rss+xml")
TRIAL = Document("http://trial/", "text/html", None, b"<p>It is read.</p>", cut=False)


class BrowserTool:
    """The tool, as the operator configured it."""

    kind = "web_search"
    name = "browser"
    recipients = ("browser.search", "browser.open", "browser.find")
    description = DESCRIPTION
    functions = FUNCTIONS

    def __init__(
        self, service: SearchService, reach: Reach, bounds: Bounds, reading: Reading
    ) -> None:
        self._service = service
        self._reach = reach
        self._bounds = bounds
        self._reading = reading
        self._fetcher: Fetcher | None = None
        self._reader: Reader | None = None

    @property
    def deadline_s(self) -> float:
        return self._bounds.deadline_s + 2 * self._reading.deadline_s

    @property
    def processes(self) -> int:
        return self._reader.running if self._reader is not None else 0

    async def start(self) -> None:
        """Parse one page, to fail now if this machine cannot sandbox the parser."""
        self._fetcher = Fetcher(self._reach, self._bounds)
        self._reader = Reader(self._reading)
        try:
            await self._reader.read(TRIAL)
        except Unreadable as fault:
            await self.stop()
            raise StartupError(
                f"TRT_RESPONSES_BROWSER: this machine cannot sandbox the page parser: {fault}. "
                "Set it to 'off', or to 'unboxed' to parse pages without a sandbox."
            ) from None

    async def stop(self) -> None:
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None:
            await fetcher.close()
            await self._service.close()

    def ignored(self, options: Mapping[str, Any]) -> list[str]:
        return ignored_options(options, self._service)

    async def open(self, opening: Opening) -> BrowserSession:
        pages = shown_before(opening.answers())
        return BrowserSession(
            self._page,
            self._service,
            search_options(opening.options),
            pages,
            seen_before(opening),
        )

    async def _page(self, url: str, permit: Permit, *, source: bool) -> Page:
        assert self._fetcher is not None, "not started"
        assert self._reader is not None
        document = await self._fetcher.get(url, is_wanted=_is_textual, permit=permit)
        if source:
            document = document._replace(content_type="text/plain")
        return await self._reader.read(document)


def seen_before(opening: Opening) -> Seen:
    """The URLs of a conversation: in user messages, in citations, found and opened ones."""
    seen = Seen(url for text in opening.messages() for url in urls_in(text))
    seen.add(*opening.cited())
    for item in opening.items:
        action = item.get("action") or {}
        sources = found if isinstance(found := action.get("sources"), list) else []
        urls = [source.get("url") for source in sources if isinstance(source, dict)]
        if item.get("status") == "completed" and action.get("type") == "open_page":
            urls.append(action.get("url"))
        seen.add(*(url for url in urls if isinstance(url, str)))
    return seen


def _is_textual(kind: str) -> bool:
    return kind.startswith("text/") or kind in TEXTUAL or kind.endswith(("+json", "+xml"))


def search_options(options: Any) -> SearchOptions:
    """The search options of a validated request."""
    named = (options.get("filters") or {}).get("allowed_domains") or ()
    plain = (domain.strip().rstrip(".").lower() for domain in named)
    # As they stand in URLs, where letters beyond ASCII have a spelling of their own.
    domains = tuple(urlsplit(usable(f"http://{one}")).hostname or one for one in plain)
    country = (options.get("user_location") or {}).get("country")
    size = options.get("search_context_size") or "medium"
    return SearchOptions(domains, country, WINDOWS[size])


def ignored_options(options: Mapping[str, Any], service: SearchService) -> list[str]:
    """The parts of `user_location` that the service does not support."""
    location = options.get("user_location") or {}
    supported = {"type", "country"} if service.knows_country else {"type"}
    return [
        f"user_location.{name}"
        for name, value in location.items()
        if value and name not in supported
    ]

"""One response's browser session: a stack of pages; the index of a page is its cursor.

Every successful search, open and find pushes a page. Fetching and searching are passed in; a
failure becomes an error text for the model.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import httpx2

from trt_responses.frozen import dataclass
from trt_responses.tool import Recipient, ToolAnswer
from trt_responses.tools.browser import texts
from trt_responses.tools.browser.marks import label
from trt_responses.tools.browser.page import display, find_text, window_end
from trt_responses.tools.browser.reading import Unreadable
from trt_responses.tools.browser.results import results_page
from trt_responses.tools.browser.search import Query, SearchFailed
from trt_responses.tools.browser.urls import Seen, host_is_allowed
from trt_responses.tools.session import NO_JSON, Source, arguments_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from trt_responses.tool import ToolCall
    from trt_responses.tools.browser.page import Page
    from trt_responses.tools.browser.search import SearchService
    from trt_responses.tools.fetch_guard import Permit

    Action = Mapping[str, Any]

RESULTS, MOST_RESULTS = 10, 20
LINES_BEFORE = 4
"""Lines shown before a match when it is opened."""


class Fetch(Protocol):
    """Fetches the page at a URL. Raises an `httpx2` error or an `Unreadable`."""

    def __call__(self, url: str, permit: Permit, *, source: bool) -> Awaitable[Page]: ...


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Search options of the request."""

    domains: tuple[str, ...] = ()
    country: str | None = None
    window_tokens: int = 1024


class CallFailed(Exception):
    """A call failed; the message is for the model."""


class _Open(NamedTuple):
    """The parsed arguments of a call of `open`."""

    loc: int
    num_lines: int
    source: bool
    page: Page | None = None
    """The current page; None if the model gives a URL."""
    url: str | None = None
    """The URL to open; None: the page itself, or its link `link`."""
    link: int | None = None
    """The link's id, if the page must be fetched again first."""


class BrowserSession:
    """The browser of one response."""

    def __init__(
        self,
        fetch: Fetch,
        service: SearchService,
        search_options: SearchOptions,
        pages: Mapping[int, Page],
        seen: Seen,
    ) -> None:
        """`pages`: from before a client's function interrupted the loop. `seen`: the URLs that may
        be opened, so that a hostile page cannot lead the model to one that holds secrets."""
        self._fetch = fetch
        self._service = service
        self._search_options = search_options
        self._seen = seen
        self._pages = dict(pages)
        self._next = max(pages, default=-1) + 1
        for page in pages.values():
            self._note(page)
        self._calls: dict[str, Callable[[dict[str, Any]], Awaitable[ToolAnswer]]] = {
            "browser.search": self._search,
            "browser.open": self._open,
            "browser.find": self._find,
        }

    @property
    def recipients(self) -> Mapping[str, Recipient]:
        return {
            name: Recipient("web_search", describe=partial(self._action, name))
            for name in self._calls
        }

    async def call(self, call: ToolCall) -> ToolAnswer:
        name = call.recipient.removeprefix("functions.")
        try:
            return await self._calls[name](_arguments(call.text))
        except CallFailed as fault:
            return ToolAnswer(str(fault), failed=True)

    async def close(self) -> None:
        self._pages.clear()

    def source(self, cursor: int, line: int) -> Source | None:
        """The source of a line of a display."""
        page = self._pages.get(cursor)
        return page.source(line) if page is not None else None

    # --- the three calls ----------------------------------------------------------------------

    async def _search(self, arguments: dict[str, Any]) -> ToolAnswer:
        text = _text(arguments, "query")
        most = min(max(1, _number(arguments, "topn", RESULTS)), MOST_RESULTS)
        options = self._search_options
        try:
            answers = await self._service.results(
                Query(text, most, options.domains, options.country)
            )
        except SearchFailed as fault:
            raise CallFailed(texts.NOT_SEARCHED.format(label(text), fault)) from None
        results = [r for r in answers if host_is_allowed(r.url, options.domains)][:most]
        if not results:
            raise CallFailed(texts.NOT_SEARCHED.format(label(text), "there are no results"))
        sources = [{"type": "url", "url": result.url} for result in results]
        return self._shown(results_page(text, results), 0, -1, _search_action(text, sources))

    async def _open(self, arguments: dict[str, Any]) -> ToolAnswer:
        target = self._parse_open(arguments)
        page, url = target.page, target.url
        if page is not None and not page.lines:
            page = await self._fetched(page.url)
            url = url if target.link is None else _link(page, target.link)
        if url is not None:
            page = await self._fetched(url, is_given=target.page is None, source=target.source)
        assert page is not None, "no page and no URL"
        if target.loc >= len(page.lines):
            raise CallFailed(texts.NO_LINE.format(target.loc, len(page.lines) - 1))
        action = {"type": "open_page", "url": page.url or None}
        return self._shown(page, max(0, target.loc), target.num_lines, action)

    async def _find(self, arguments: dict[str, Any]) -> ToolAnswer:
        pattern = _text(arguments, "pattern")
        page = self._at(_number(arguments, "cursor", -1))
        if page.sources or page.jumps or not page.url:
            raise CallFailed(texts.NOT_TO_BE_FOUND_IN)
        if not page.lines:
            page = await self._fetched(page.url)
        matches = find_text(page, pattern)
        if matches is None:
            raise CallFailed(texts.NOT_FOUND.format(label(pattern)))
        return self._shown(matches, 0, -1, _find_action(pattern, page.url))

    # --- pages --------------------------------------------------------------------------------

    def _parse_open(self, arguments: dict[str, Any]) -> _Open:
        target = arguments.get("id", -1)
        shown = _Open(
            _number(arguments, "loc", -1),
            _number(arguments, "num_lines", -1),
            arguments.get("view_source") is True,
        )
        if isinstance(target, str) and not target.strip().lstrip("-").isdigit():
            return shown._replace(url=_whole(target))
        number, page = _number(arguments, "id", -1), self._at(_number(arguments, "cursor", -1))
        if number < 0:
            again = page.url if shown.source and page.url else None
            return shown._replace(page=page, url=again)
        if page.jumps:
            if number >= len(page.jumps):
                raise CallFailed(texts.NO_LINK.format(number))
            loc = page.jumps[number] - LINES_BEFORE if shown.loc < 0 else shown.loc
            return shown._replace(page=page, url=page.url, loc=loc)
        if not page.lines:
            return shown._replace(page=page, link=number)
        return shown._replace(page=page, url=_link(page, number))

    def _at(self, cursor: int) -> Page:
        if not self._pages:
            raise CallFailed(texts.NO_PAGES)
        if cursor == -1:
            return self._pages[max(self._pages)]
        if cursor not in self._pages:
            raise CallFailed(texts.NO_CURSOR.format(cursor, self._next - 1))
        return self._pages[cursor]

    async def _fetched(self, url: str, *, is_given: bool = False, source: bool = False) -> Page:
        """The page at a URL. A page that this response has fetched before is reused, unless the
        model gives the URL itself."""
        if not (is_given or source):
            for page in self._pages.values():
                if page.url == url and page.lines and not page.jumps:
                    return page
        if url not in self._seen:
            raise CallFailed(texts.NOT_FETCHED.format(label(url), texts.UNSEEN))
        try:
            page = await self._fetch(url, self._permit, source=source)
        except (httpx2.HTTPError, httpx2.InvalidURL, Unreadable) as fault:
            raise CallFailed(texts.NOT_FETCHED.format(label(url), label(str(fault)))) from None
        self._note(page)
        for cursor, before in self._pages.items():
            if before.url == page.url and not before.lines:
                self._pages[cursor] = page._replace(shown=before.shown)
        return page

    def _permit(self, url: httpx2.URL) -> str | None:
        """Why a URL, or a redirect's target, must not be fetched; None if it may."""
        domains = self._search_options.domains
        if host_is_allowed(str(url), domains):
            return None
        return texts.NOT_ALLOWED.format(", ".join(domains))

    def _note(self, page: Page) -> None:
        self._seen.add(page.url, *page.links)

    def _shown(self, page: Page, loc: int, num_lines: int, action: Action) -> ToolAnswer:
        cursor, self._next = self._next, self._next + 1
        end = window_end(page, loc, num_lines, self._search_options.window_tokens)
        self._pages[cursor] = page._replace(shown=range(loc, end))
        self._note(page)
        text = display(cursor, page, loc, num_lines, self._search_options.window_tokens)
        return ToolAnswer(text, details={"action": action})

    # --- the client's items -------------------------------------------------------------------

    def _action(self, name: str, text: str) -> Mapping[str, Any]:
        """A call's action, as far as its arguments show."""
        try:
            arguments = _arguments(text)
        except CallFailed:
            arguments = {}
        try:
            if name == "browser.open":
                target = self._parse_open(arguments)
                url = target.url or (target.page.url if target.page is not None else "")
                return {"action": {"type": "open_page", "url": url or None}}
            if name == "browser.find":
                page = self._at(_number(arguments, "cursor", -1))
                return {"action": _find_action(_text(arguments, "pattern"), page.url)}
            return {"action": _search_action(_text(arguments, "query"), [])}
        except CallFailed:
            return {"action": NOTHING_DONE[name]}


def _link(page: Page, number: int) -> str:
    if number < len(page.links) and page.links[number]:
        return page.links[number]
    raise CallFailed(texts.NO_LINK.format(number))


def _search_action(query: str, sources: list[dict[str, str]]) -> Action:
    return {"type": "search", "query": query, "queries": [query], "sources": sources}


def _find_action(pattern: str, url: str) -> Action:
    return {"type": "find_in_page", "pattern": pattern, "url": url}


NOTHING_DONE: Mapping[str, Action] = {
    "browser.search": _search_action("", []),
    "browser.open": {"type": "open_page", "url": None},
    "browser.find": _find_action("", ""),
}
"""Actions of calls with invalid arguments."""


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = arguments_of(text or "{}")
    except ValueError as fault:
        raise CallFailed(str(fault)) from None
    if not isinstance(arguments, dict):
        raise CallFailed(NO_JSON.format("expected an object"))
    return arguments


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise CallFailed(texts.BAD_ARGUMENT.format(name, "text"))
    return value


def _number(arguments: dict[str, Any], name: str, default: int) -> int:
    value = arguments.get(name)
    if value is None:
        return default
    try:
        return int(value)
    except (TypeError, ValueError):
        raise CallFailed(texts.BAD_ARGUMENT.format(name, "number")) from None


def _whole(url: str) -> str:
    url = url.strip()
    return url if "://" in url or url.startswith(("data:", "javascript:")) else f"https://{url}"

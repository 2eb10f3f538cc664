"""Search results as pages, and the pages of earlier displays of a conversation.

A tool loop that was interrupted by a client's function continues with its cursors. The displays, in
the record and the seal, contain all it needs: URL and title of a page, and the lists that the model
has seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from trt_responses.tools.browser.marks import harmless, label
from trt_responses.tools.browser.page import FIND_TITLE, Page, wrapped
from trt_responses.tools.browser.search import Result, usable
from trt_responses.tools.session import Source

HEAD = "# Search Results"
# A client may bring displays that are none: all numbers are bounded.
_RESULT = re.compile("  \\* 【([0-9]{1,3})†([^†】]*)(?:†[^】]*)?】$")
_JUMP = re.compile("# 【[0-9]{1,3}†match at L([0-9]{1,7})】$")
_VIEW = re.compile(r"\n\*\*viewing lines \[[0-9]{1,7} - [0-9]{1,7}\] of [0-9]{1,7}\*\*\n\n")
_HEAD = re.compile(r"\[([0-9]{1,4})\] ")
_PAGE = re.compile(r"(.*) \((https?://\S+)\)$")
_LINE = re.compile(r"L([0-9]{1,7}): (.*)")
LIST_LINES = 1000
"""Lines of a list: twenty results have some 240, and fifty findings 300."""


def results_page(query: str, results: Sequence[Result]) -> Page:
    """The page with the results of a search."""
    lines, sources = [HEAD, ""], list[Source | None]((None, None))
    for number, result in enumerate(results):
        host = urlsplit(result.url).hostname or ""
        title = label(result.title) or host
        lines.append(f"  * 【{number}†{title}†{label(host)}】")
        lines.append(f"    {result.url}")
        text = " ".join(harmless(result.text).split())
        lines += [f"    {line}" for line in wrapped((text,)) if line]
        sources += [Source(result.url, title)] * (len(lines) - len(sources))
    return Page("", label(query), tuple(lines), tuple(r.url for r in results), tuple(sources))


def shown_before(displays: Iterable[str]) -> dict[int, Page]:
    """The pages of earlier displays by cursor. A web page has no lines here: it must be fetched
    again."""
    pages: dict[int, Page] = {}
    for text in displays:
        view = _VIEW.search(text)
        if view is None:
            continue
        at, following = text.rfind("\n", 0, view.start()) + 1, max(pages, default=-1) + 1
        heads = list(_HEAD.finditer(text, at, view.start()))
        if not heads:
            continue
        # The call's arguments, on the same line, may hold other numbers.
        head = next((one for one in heads if int(one[1]) == following), heads[0])
        title, cursor = text[head.end() : view.start()], int(head[1])
        page = _PAGE.match(title)
        if page is not None and not usable(page[2]):
            continue
        body = [_LINE.fullmatch(line) for line in text[view.end() :].split("\n")]
        lines = {int(line[1]): line[2] for line in body if line is not None}
        if page is None:
            pages[cursor] = _list_page(title, lines)
        elif page[1].startswith(FIND_TITLE):
            jumps = [int(jump[1]) for line in lines.values() if (jump := _JUMP.match(line))]
            pages[cursor] = Page(page[2], page[1], _all(lines), jumps=tuple(jumps))
        else:
            pages[cursor] = Page(page[2], page[1], ())
        shown = range(min(lines), max(lines) + 1) if lines else range(0)
        pages[cursor] = pages[cursor]._replace(shown=shown)
    return pages


def _all(lines: dict[int, str]) -> tuple[str, ...]:
    end = 1 + max((number for number in lines if number < LIST_LINES), default=-1)
    return tuple(lines.get(number, "") for number in range(end))


def _list_page(title: str, shown: dict[int, str]) -> Page:
    lines = _all(shown)
    links: dict[int, str] = {}
    sources: list[Source | None] = []
    here: Source | None = None
    for line, following in zip(lines, (*lines[1:], ""), strict=False):
        if (result := _RESULT.match(line)) and (url := usable(following.strip())):
            links[int(result[1])], here = url, Source(url, result[2])
        sources.append(here)
    urls = tuple(links.get(number, "") for number in range(max(links, default=-1) + 1))
    return Page("", title, lines, urls, tuple(sources))

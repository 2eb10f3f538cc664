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
from trt_responses.tools.browser.search import Result
from trt_responses.tools.session import Source

HEAD = "# Search Results"
_RESULT = re.compile("  \\* 【(\\d+)†([^†】]*)(?:†[^】]*)?】$")
_JUMP = re.compile("# 【\\d+†match at L(\\d+)】$")
_SHOWN = re.compile(r"\[(\d+)\] (.*)\n\*\*viewing lines \[(\d+) - \d+\] of \d+\*\*\n\n")
_PAGE = re.compile(r"(.*) \((https?://\S+)\)$")
_LINE = re.compile(r"L(\d+): (.*)")


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
        head = _SHOWN.search(text)
        if head is None:
            continue
        page, cursor = _PAGE.match(head[2]), int(head[1])
        body = [_LINE.fullmatch(line) for line in text[head.end() :].split("\n")]
        lines = {int(line[1]): line[2] for line in body if line is not None}
        if page is None:
            pages[cursor] = _list_page(head[2], lines)
        elif page[1].startswith(FIND_TITLE):
            jumps = [int(jump[1]) for line in lines.values() if (jump := _JUMP.match(line))]
            pages[cursor] = Page(page[2], page[1], _all(lines), jumps=tuple(jumps))
        else:
            pages[cursor] = Page(page[2], page[1], ())
        shown = range(min(lines), max(lines) + 1) if lines else range(0)
        pages[cursor] = pages[cursor]._replace(shown=shown)
    return pages


def _all(lines: dict[int, str]) -> tuple[str, ...]:
    return tuple(lines.get(number, "") for number in range(max(lines, default=-1) + 1))


def _list_page(title: str, shown: dict[int, str]) -> Page:
    lines = _all(shown)
    links: dict[int, str] = {}
    sources: list[Source | None] = []
    here: Source | None = None
    for line, following in zip(lines, (*lines[1:], ""), strict=True):
        if result := _RESULT.match(line):
            url = following.strip()
            links[int(result[1])], here = url, Source(url, result[2])
        sources.append(here)
    urls = tuple(links.get(number, "") for number in range(max(links, default=-1) + 1))
    return Page("", title, lines, urls, tuple(sources))

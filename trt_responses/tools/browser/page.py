"""Pages for a model: numbered lines, windows of lines, and search within a page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from trt_responses.tools.browser.marks import label
from trt_responses.tools.session import Source

TOKEN_BYTES = 4
"""UTF-8 bytes per token of a window: an estimate, without a vocabulary."""
FOUND = 50
SNIPPET_LINES = 4
WIDTH = 80
FIND_TITLE = "Find results for text: `"
_MARK = re.compile("【\\d+†([^†】]*)(?:†[^】]*)?】")


class Page(NamedTuple):
    """One page of the stack; its index is its cursor."""

    url: str
    """Empty for a list of results."""
    title: str
    lines: tuple[str, ...]
    links: tuple[str, ...] = ()
    """URLs by mark id."""
    sources: tuple[Source | None, ...] = ()
    """Sources by line, for a list of pages; empty if the page itself is the source."""
    jumps: tuple[int, ...] = ()
    """Lines of the page at `url` by mark id, for a list of matches."""
    cut: bool = False
    shown: range = range(0)
    """The lines that the model has seen."""

    def source(self, line: int) -> Source | None:
        """The source of a line that the model has seen, or None."""
        if line not in self.shown:
            return None
        if self.sources:
            return self.sources[line] if line < len(self.sources) else None
        return Source(self.url, self.title) if self.url else None


def window_end(page: Page, loc: int, num_lines: int, tokens: int) -> int:
    """The end of a window: the line after its last."""
    if num_lines > 0:
        return min(loc + num_lines, len(page.lines))
    sizes = (len(line.encode()) + 6 for line in page.lines[loc:])
    for count, size in enumerate(accumulate(sizes), 1):
        if size >= tokens * TOKEN_BYTES:
            return loc + count
    return len(page.lines)


def display(cursor: int, page: Page, loc: int, num_lines: int, tokens: int) -> str:
    """The display of a window, for the model."""
    end = window_end(page, loc, num_lines, tokens)
    name = f"{page.title} ({page.url})" if page.url else page.title
    last = len(page.lines) - 1
    seen = f"**viewing lines [{loc} - {end - 1}] of {last}**"
    body = [f"L{number}: {page.lines[number]}" for number in range(loc, end)]
    if page.cut and end == len(page.lines):
        body.append("[The page is longer than what is read of one: the rest is left out.]")
    return "\n".join((f"[{cursor}] {name}", seen, "", *body))


def find_text(page: Page, pattern: str) -> Page | None:
    """The matches of a text in a page, ignoring case, as a page; None without a match."""
    lines: list[str] = []
    jumps: list[int] = []
    needle, number = pattern.lower(), 0
    while number < len(page.lines) and len(jumps) < FOUND:
        if needle not in _MARK.sub(r"\1", page.lines[number]).lower():
            number += 1
            continue
        lines.append(f"# 【{len(jumps)}†match at L{number}】")
        lines += page.lines[number : number + SNIPPET_LINES]
        lines.append("")
        jumps.append(number)
        number += SNIPPET_LINES
    if not jumps:
        return None
    title = f"{FIND_TITLE}{label(pattern, 80)}` in `{page.title}`"
    return Page(page.url, title, tuple(lines[:-1]), jumps=tuple(jumps))


def wrapped(lines: Iterable[str]) -> list[str]:
    """The lines wrapped at spaces. `textwrap` takes hours for a long word."""
    result: list[str] = []
    for line in lines:
        begin = 0
        while len(line) - begin > WIDTH:
            space = line.rfind(" ", begin + 1, begin + WIDTH)
            end = space + 1 if space > 0 else begin + WIDTH
            result.append(line[begin:end].rstrip())
            begin = end
        result.append(line[begin:])
    return result

"""Pages as a model sees them: lines with numbers, a window of them, and what is found in them."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from trt_responses.tool import Source
from trt_responses.tools.browser.marks import label

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKEN_BYTES = 4
"""Of UTF-8, for each token that a window may take: no vocabulary is known here."""
FOUND = 50
SNIPPET_LINES = 4
WIDTH = 80
FIND_TITLE = "Find results for text: `"
_MARK = re.compile("【\\d+†([^†】]*)(?:†[^】]*)?】")


class Page(NamedTuple):
    """One page of the stack, whose place there is its cursor."""

    url: str
    """Empty for a list of results."""
    title: str
    lines: tuple[str, ...]
    links: tuple[str, ...] = ()
    """URLs by the ids of their marks."""
    sources: tuple[Source | None, ...] = ()
    """By line, where lines stand for pages of their own; else the page is their source."""
    jumps: tuple[int, ...] = ()
    """Lines of the page at `url` that the ids of marks stand for, of a list of what was found."""
    cut: bool = False
    shown: range = range(0)
    """The lines that the model was shown, of a page of the stack."""

    def source(self, line: int) -> Source | None:
        """What a line that was shown says it of; None for any other."""
        if line not in self.shown:
            return None
        if self.sources:
            return self.sources[line] if line < len(self.sources) else None
        return Source(self.url, self.title) if self.url else None


def window_end(page: Page, loc: int, num_lines: int, tokens: int) -> int:
    """The line behind the last that is shown."""
    if num_lines > 0:
        return min(loc + num_lines, len(page.lines))
    sizes = (len(line.encode()) + 6 for line in page.lines[loc:])
    for count, size in enumerate(accumulate(sizes), 1):
        if size >= tokens * TOKEN_BYTES:
            return loc + count
    return len(page.lines)


def display(cursor: int, page: Page, loc: int, num_lines: int, tokens: int) -> str:
    """What the model reads."""
    end = window_end(page, loc, num_lines, tokens)
    name = f"{page.title} ({page.url})" if page.url else page.title
    last = len(page.lines) - 1
    seen = f"**viewing lines [{loc} - {end - 1}] of {last}**"
    body = [f"L{number}: {page.lines[number]}" for number in range(loc, end)]
    if page.cut and end == len(page.lines):
        body.append("[The page is longer than what is read of one: the rest is left out.]")
    return "\n".join((f"[{cursor}] {name}", seen, "", *body))


def found(page: Page, pattern: str) -> Page | None:
    """The places where a text stands in a page, whatever its case; None where there is none."""
    lines: list[str] = []
    jumps: list[int] = []
    wanted, number = pattern.lower(), 0
    while number < len(page.lines) and len(jumps) < FOUND:
        if wanted not in _MARK.sub(r"\1", page.lines[number]).lower():
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
    """Lines of a bounded width, broken at spaces. `textwrap` takes hours over a long word."""
    found: list[str] = []
    for line in lines:
        begin = 0
        while len(line) - begin > WIDTH:
            space = line.rfind(" ", begin + 1, begin + WIDTH)
            end = space + 1 if space > 0 else begin + WIDTH
            found.append(line[begin:end].rstrip())
            begin = end
        found.append(line[begin:])
    return found

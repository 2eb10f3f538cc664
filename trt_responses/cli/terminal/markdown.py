"""Renders Markdown in a terminal while it streams.

Blocks that are complete are printed for good; the block under way is drawn again as it grows. A
block taller than the terminal shows its end until it is complete.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segments

if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import ConsoleOptions, RenderResult

DRAWS_PER_S = 20
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


class MarkdownStream:
    """One text in Markdown, drawn as it comes."""

    def __init__(self, out: TextIO) -> None:
        self._open = ""
        self._console = Console(file=out, highlight=False)
        self._live = Live(
            console=self._console,
            get_renderable=lambda: _End(_rendered(self._open)),
            refresh_per_second=DRAWS_PER_S,  # by a thread, also while nothing comes
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._printed = False
        self._split_s = 0.0

    def add(self, text: str) -> None:
        """Add the next piece of the text."""
        if not self._live.is_started:
            self._live.start()
        self._open += text
        now = time.monotonic()
        if now - self._split_s >= 1 / DRAWS_PER_S:
            self._split_s = now
            complete, rest = split(self._open)
            if complete:
                self._open = rest
                self._print(complete)

    def close(self) -> None:
        """Print what is still open. Nothing may be added after it."""
        rest, self._open = self._open, ""
        self._live.stop()
        if rest.strip():
            self._print(rest)

    def _print(self, text: str) -> None:
        if self._printed:
            self._console.print()
        self._printed = True
        self._console.print(_rendered(text))


class _End:
    """The last lines of a text, as many as the terminal has."""

    def __init__(self, markdown: Markdown) -> None:
        self._markdown = markdown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._markdown, options, pad=False, new_lines=True)
        yield Segments(segment for line in lines[-(options.size.height - 2) :] for segment in line)


def split(text: str) -> tuple[str, str]:
    """The blocks that no further text can change, and the rest."""
    starts = [token.map[0] for token in PARSER.parse(text) if token.map and token.level == 0]
    lines = text.splitlines(keepends=True)
    last = starts[-1] if starts else 0
    return "".join(lines[:last]), "".join(lines[last:])


def _rendered(text: str) -> Markdown:
    """No hyperlinks: a model's text is not to hide where a link leads."""
    return Markdown(text, code_theme="ansi_dark", hyperlinks=False)

"""The fences of the pages, and what a comment above a fence says of it.

`<!-- not run: needs a GPU -->`: why a fence is not run here. `<!-- file: agent.py -->`: the reader
saves the fence as that file. `<!-- prints -->`: the commands above print these lines, in this
order; `…` stands for anything. `<!-- needs: codex -->`: run where that program is. A page with
`<!-- typed in order -->` is one session of one reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
RUN = ("sh", "python")
SHOWN = ("text", "json", "toml", "js", "ini", "yaml")
"""Languages of fences without a command of this project; what `js` needs comes from npm."""
REASONS = (
    *("needs a GPU", "needs Docker", "needs a cluster", "needs a download", "needs a real model"),
    *("needs a search service", "needs an OTLP receiver", "needs a server of yours"),
    *("needs a terminal", "needs another package", "tests/e2e/test_embedding.py does"),
    *(
        "tests/e2e/test_extending.py does",
        "tests/unit/stores/test_backup.py does",
        "tests/unit/stores/postgres/test_objects.py does",
        "tests/unit/features/migrate/test_migrate.py does",
        "tests/e2e/test_script.py does",
        "tests/e2e/test_judges.py does",
        "needs root",
        "tests/e2e/test_http_engines.py does",
        "tests/e2e/test_remote_template.py does",
        "needs a domain of yours",
    ),
    *("tests/deploy/test_systemd.py does", "tests/e2e/test_serve_model.py does"),
)
FENCE = re.compile(
    r"(?:^<!-- (not run|needs|file|prints)(?:: (.+?))? -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S
)
IN_ORDER = "<!-- typed in order -->"


@dataclass(frozen=True)
class Block:
    """One fence of a page."""

    page: Path
    line: int
    language: str
    text: str
    mark: str | None = None
    """What the comment above the fence is: `not run`, `needs`, `file` or `prints`."""
    marked: str | None = None
    """The reason, the programs or the file in that comment."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why it is not run here."""
        if self.mark == "needs":
            lacking = [one for one in (self.marked or "").split(", ") if which(one) is None]
            return f"needs {', '.join(lacking)}" if lacking else None
        return self.marked if self.mark == "not run" else None

    @property
    def is_run(self) -> bool:
        return self.language in RUN and self.mark in (None, "needs") and self.reason is None


class CommandFailed(Exception):
    """A command of a page does not work, or does not print what the page shows."""


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start(3)) + 1
        yield Block(page, line, found[3], found[4], found[1], found[2])


def is_in_order(page: Path) -> bool:
    """Whether the page's commands belong to one session, as a tutorial's do."""
    return IN_ORDER in page.read_text("utf-8")

"""The index of the pages, and whom each page is for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.imports import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCS = ROOT / "docs"
INDEX = DOCS / "README.md"
PAGES = sorted(DOCS.glob("*.md"))


def test_every_page_is_in_the_index_once() -> None:
    linked = re.findall(r"^- \[([\w.-]+)\]\(\1\): ", INDEX.read_text(), re.MULTILINE)
    assert sorted(linked) == sorted(page.name for page in PAGES if page != INDEX)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_whom_it_is_for(page: Path) -> None:
    title, first, *_ = page.read_text().split("\n\n")
    assert title.startswith("# ")
    assert first.startswith("For ")

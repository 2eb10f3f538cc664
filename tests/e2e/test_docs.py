"""The commands of the pages that ask a server with the demo, and the tutorials typed from top to
bottom; `make docs-check` runs all pages.

Budget: 60 s a tutorial on one core; a tutorial prepares its own demo, and each starts servers.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from scripts.docs_blocks import ROOT, CommandFailed, blocks, is_in_order
from scripts.docs_check import Reader
from tests.support.pages import nav

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = ("api", "state")
TYPED = [page for page in nav()["Tutorials"] if page != "production.md"]
"""`make deploy-check` types the production page, under a real systemd."""
TRIES = 3
"""Codex samples at temperature 1, and the demo model writes one call in ten wrong."""

pytestmark = pytest.mark.xdist_group("docs")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, demo_engines: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path_factory.mktemp("reader"), demo_engines)
    try:
        reader.start()
        yield reader
    finally:
        reader.stop()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(page: str, reader: Reader, tmp_path: Path) -> None:
    run = [block for block in blocks(ROOT / "docs" / f"{page}.md") if block.is_run]
    assert run
    for block in run:
        reader.run(block, tmp_path)


@pytest.mark.timeout(1500)  # several servers, one after the other, on a machine that may be busy
@pytest.mark.parametrize("page", TYPED)
def test_a_tutorial_works_as_typed(page: str, reader: Reader, tmp_path: Path) -> None:
    path = ROOT / "docs" / page
    assert is_in_order(path)
    tries = TRIES if page == "codex.md" else 1
    for number in range(1, tries + 1):
        again = page == "codex.md"  # which the other tutorials prepare
        with closing(reader.session(tmp_path / str(number), again=again)) as session:
            try:
                for block in blocks(path):
                    session.run(block)
            except CommandFailed:
                if number == tries:
                    raise
            else:
                return

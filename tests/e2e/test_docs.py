"""The commands of the pages that ask a server with the demo; `make docs-check` runs all pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts.docs_check import ROOT, Reader, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = ("api", "state")

pytestmark = pytest.mark.xdist_group("docs")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    reader = Reader(tmp_path_factory.mktemp("reader"))
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

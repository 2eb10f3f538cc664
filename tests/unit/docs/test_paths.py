"""Every path that the pages and the docstrings name is there."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

import pytest

from scripts.docs_blocks import blocks
from tests.support.imports import PACKAGE, ROOT

if TYPE_CHECKING:
    from pathlib import Path

QUOTED = re.compile(r"`([\w.{},/-]+)`")
BRACES = re.compile(r"\{([^{}]+)\}")
ENDS = ("/", ".py", ".md", ".json", ".txt", ".toml", ".h", ".cpp")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = sorted((ROOT / PACKAGE).rglob("*.py"))
ELSEWHERE = {
    # where a server runs
    "data/",
}


def spelled_out(path: str) -> list[str]:
    """`a/{b,c}.py` is two paths."""
    parts = BRACES.split(path)
    choices = [part.split(",") if n % 2 else [part] for n, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


def named(page: Path) -> set[str]:
    """The paths that a page names: from the top of the repository or of the package, or a file of
    the package by its name alone. Not the files that its reader saves."""
    found = {path for path in QUOTED.findall(page.read_text("utf-8")) if path.endswith(ENDS)}
    found -= {block.marked for block in blocks(page) if block.mark == "file"}
    apart = {one for path in found for one in spelled_out(path) if not one.startswith(("/", "."))}
    return {one for one in apart if "/" in one or one.endswith(".py")}


def stands(path: str) -> bool:
    if "/" not in path:
        return any(source.name == path for source in SOURCES)
    return (ROOT / path).exists() or (ROOT / PACKAGE / path).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    assert [path for path in sorted(named(page) - ELSEWHERE) if not stands(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_file_that_the_code_names_is_there() -> None:
    lost = {
        (source.relative_to(ROOT).as_posix(), path)
        for source in SOURCES
        for path in named(source)
        if path.endswith(".py") and not stands(path)
    }
    assert sorted(lost) == []


def test_paths_are_found_and_missed() -> None:
    assert spelled_out("response/log/{log,fold}.py") == [
        "response/log/log.py",
        "response/log/fold.py",
    ]
    assert stands("app.py")
    assert stands("tests/unit/")
    assert not stands("response/folds.py")
    assert sum(len(named(page)) for page in PAGES) > 40


def test_what_is_elsewhere_is_named() -> None:
    assert {path for page in PAGES for path in named(page)} >= ELSEWHERE

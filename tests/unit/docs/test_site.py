"""The site: each page stands once, in one of four groups; links, anchors, alt texts are whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from scripts.site import write_versions
from scripts.site_links import on_page_markdown
from tests.support.pages import DOCS, GROUPS, INDEX, ROOT, anchors, nav, pages, without_code

if TYPE_CHECKING:
    from pathlib import Path

WITH_README = [ROOT / "README.md", *pages()]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def test_the_nav_has_every_page_once_in_one_of_four_groups() -> None:
    found = nav()
    assert tuple(group for group in found if group) == GROUPS
    assert found[""] == ["README.md"]
    assert sorted(page for group in found.values() for page in group) == sorted(
        page.name for page in pages()
    )


def test_all_pages_stand_flat_beside_each_other() -> None:
    inside = {path.relative_to(DOCS).parts[0] for path in DOCS.rglob("*.md") if path.parent != DOCS}
    assert inside <= {"decisions"}


def test_the_index_lists_the_pages_of_each_group() -> None:
    sections = re.split(r"^## (.+)$", INDEX.read_text("utf-8"), flags=re.M)
    listed = {
        title: re.findall(r"^- \[([\w.-]+)\]\(\1\): ", text, re.M)
        for title, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    for group in GROUPS:
        assert sorted(listed[group]) == sorted(nav()[group]), group


@pytest.mark.parametrize("page", WITH_README, ids=lambda page: page.name)
def test_every_anchor_that_a_page_links_to_exists(page: Path) -> None:
    text = without_code(page.read_text("utf-8"))
    lost = []
    for target in LINK.findall(text):
        path, mark, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if mark and not target.startswith("http") and file.suffix == ".md":
            known = anchors(file.read_text("utf-8")) if file.exists() else set()
            lost += [target] if anchor not in known else []
    assert lost == []


@pytest.mark.parametrize("page", WITH_README, ids=lambda page: page.name)
def test_images_exist_and_have_a_text(page: Path) -> None:
    for text, target in re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target
        assert len(text) > 20, f"{target}: say what it shows"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Where MkDocs is installed: `make docs` does it, and the same build runs there."""
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "search" / "search_index.json").exists()


def test_versions_stand_beside_each_other_and_the_first_page_leads_to_the_newest(
    tmp_path: Path,
) -> None:
    for name in ("0.9.0", "0.10.0", "assets"):
        (tmp_path / name / "search").mkdir(parents=True)
        (tmp_path / name / "search" / "search_index.json").touch()
    assert write_versions(tmp_path) == ["0.10.0", "0.9.0"]
    listed = json.loads((tmp_path / "versions.json").read_text("utf-8"))
    assert [each["version"] for each in listed] == ["0.10.0", "0.9.0"]
    assert "url=0.10.0/" in (tmp_path / "index.html").read_text("utf-8")


def test_links_out_of_the_folder_become_paths_on_the_site() -> None:
    shown = on_page_markdown(
        "[the unit](../deploy/systemd), [`bench/README.md`](../bench/README.md#rows), "
        "[why](decisions/run.md) and [keys](keys.md#rotate)"
    )
    assert shown == (
        "the unit (`deploy/systemd`), `bench/README.md`, "
        "why (`docs/decisions/run.md`) and [keys](keys.md#rotate)"
    )

"""What `make release` checks before it builds, and how it compares what it has built."""

from __future__ import annotations

import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from scripts.release import ReleaseFault, check_changelog, files, runs
from tests.support.pages import ROOT
from trt_responses import __version__

if TYPE_CHECKING:
    from pathlib import Path


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    check_changelog((ROOT / "CHANGELOG.md").read_text("utf-8"), __version__)


@pytest.mark.parametrize(
    "text", ["# Changelog\n", "## Unreleased\n", "## 0.2.0\n", "## 0.1.0 (2026-01-01)\n"]
)
def test_a_changelog_without_the_version_and_its_date_is_refused(text: str) -> None:
    with pytest.raises(ReleaseFault, match=r"CHANGELOG\.md begins with"):
        check_changelog(text, "0.2.0")


def test_wheels_are_the_same_if_their_files_are(tmp_path: Path) -> None:
    def wheel(name: str, text: str, record: str) -> Path:
        with zipfile.ZipFile(path := tmp_path / name, "w") as archive:
            archive.writestr("package/a.py", text)
            archive.writestr("package.dist-info/RECORD", record)
        return path

    one = files(wheel("one.whl", "x", "1"))
    assert one == files(wheel("two.whl", "x", "2"))
    assert one != files(wheel("three.whl", "y", "1"))


def test_an_interpreter_that_does_not_start_is_not_tried(tmp_path: Path) -> None:
    (shim := tmp_path / "python").write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    assert runs(sys.executable)
    assert not runs(str(shim))
    assert not runs("python-of-nowhere")

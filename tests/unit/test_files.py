"""Folders that can be written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from trt_responses.files import unwritable

if TYPE_CHECKING:
    from pathlib import Path


def test_many_may_look_at_once_whether_a_folder_can_be_written(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(unwritable, [tmp_path / "engine"] * 200)) == {None}
    assert list((tmp_path / "engine").iterdir()) == []


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "engine").write_text("")
    assert unwritable(tmp_path / "engine") == "File exists"
    assert unwritable(tmp_path / "engine" / "demo") == "Not a directory"

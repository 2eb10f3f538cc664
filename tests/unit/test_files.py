"""Folders that can be written, and what other users cannot read."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from trt_responses.files import (
    close_folder_to_others,
    close_to_others,
    make_private,
    reason,
)
from trt_responses.prepare.files import unwritable


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_many_may_look_at_once_whether_a_folder_can_be_written(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(unwritable, [tmp_path / "engine"] * 200)) == {None}
    assert list((tmp_path / "engine").iterdir()) == []


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "engine").write_text("")
    assert unwritable(tmp_path / "engine") == "File exists"
    assert unwritable(tmp_path / "engine" / "demo") == "Not a directory"


def test_a_full_disk_has_a_reason_also_when_numpy_finds_it() -> None:
    faults = []
    for write in (lambda file: file.write(bytes(1 << 20)), np.zeros(1 << 20).tofile):
        with Path("/dev/full").open("wb", buffering=0) as file:
            with pytest.raises(OSError, match=r"No space|requested and") as fault:
                write(file)
            faults.append(reason(fault.value))
    assert faults == ["No space left on device"] * 2
    assert reason(OSError("as it says")) == "as it says"


def test_all_folders_that_are_made_are_private_and_those_that_are_there_stay(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o755)
    make_private(tmp_path / "data" / "containers")
    make_private(tmp_path / "data" / "containers")
    assert [mode(tmp_path / name) for name in ("data", "data/containers", ".")] == [
        *(0o700, 0o700, 0o755)
    ]


def test_a_folder_and_what_is_in_it_is_closed_to_others_and_no_link_is_followed(
    tmp_path: Path,
) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    data.mkdir()
    for path, was in (
        (data / "history.db", 0o644),
        (data / "audit.jsonl", 0o755),
        (outside, 0o644),
    ):
        path.write_text("")
        path.chmod(was)
    (data / "containers").mkdir(mode=0o775)
    (data / "seal.key").symlink_to(outside)
    data.chmod(0o2775)
    close_folder_to_others(data)
    assert mode(data) == 0o2700
    own = [data / name for name in ("history.db", "audit.jsonl", "containers")]
    assert list(map(mode, own)) == [0o600, 0o700, 0o700]
    assert mode(outside) == 0o644
    close_folder_to_others(tmp_path / "nowhere")


def test_a_folder_that_was_named_by_mistake_and_what_is_in_it_stay_as_they_are(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    for name in ("passwd", "history.db-wal"):
        (folder / name).write_text("")
        (folder / name).chmod(0o644)
    folder.chmod(0o755)
    close_folder_to_others(folder)
    paths = (folder, folder / "passwd", folder / "history.db-wal")
    assert list(map(mode, paths)) == [0o755, 0o644, 0o600]


def test_a_group_may_be_kept_and_what_all_share_stays(tmp_path: Path) -> None:
    keys, shared = tmp_path / "keys.json", tmp_path / "shared"
    keys.write_text("")
    keys.chmod(0o644)
    close_to_others(keys, keep_group=True)
    assert mode(keys) == 0o640
    shared.mkdir()
    shared.chmod(0o1777)
    close_to_others(shared)
    assert mode(shared) == 0o1777


def test_a_device_stays_as_it_is() -> None:
    """A server that root starts with `/dev/null` as its file of keys took it from all others."""
    ends = os.openpty()
    terminal = Path(os.ttyname(ends[1]))
    terminal.chmod(0o666)
    close_to_others(terminal)
    assert mode(terminal) == 0o666
    for end in ends:
        os.close(end)

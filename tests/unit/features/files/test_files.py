"""Uploaded files on a disk: bounds, ends, keys, and what a dead server leaves."""

from __future__ import annotations

import base64
import io
import os
import time
from typing import TYPE_CHECKING

import orjson
import pytest

from trt_responses.errors import ApiError, InvalidRequest
from trt_responses.features.encryption.keys import StoreKeys
from trt_responses.features.files.files import BLOCK_BYTES, LOOK_BLOCKS, MOST_FILES, Bounds, Files

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.features.files.files import Incoming

MIB = 1024 * 1024
DATA = os.urandom(2 * BLOCK_BYTES + 5)


def files_in(folder: Path, owner_bytes: int = 64 * MIB, **more: object) -> Files:
    bounds = Bounds(owner_bytes, age_s=100.0)
    return Files(folder, bounds, **({"clock_s": lambda: 1000.0} | more))  # type: ignore[arg-type]


def sent(files: Files, data: bytes, owner: str = "ann", age_s: float | None = None) -> str:
    incoming = files.new(owner)
    try:
        for start in range(0, len(data), 300_000):
            incoming.write(data[start : start + 300_000])
        return str(incoming.keep("a.txt", "user_data", age_s)["id"])
    finally:
        incoming.drop()


def write_all(incoming: Incoming, mibs: int) -> None:
    for _ in range(mibs):
        incoming.write(bytes(MIB))


def key(number: int) -> bytes:
    return base64.b64encode(bytes([number]) * 32)


def on_disk(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_content_is_what_was_sent_in_clear_or_sealed(tmp_path: Path) -> None:
    keys = StoreKeys(lambda: key(1))
    plain, sealing = files_in(tmp_path / "plain"), files_in(tmp_path / "sealed", keys=keys)
    for files in (plain, sealing):
        name = sent(files, DATA)
        assert b"".join(files.content("ann", name)) == DATA
        assert files.facts("ann", name)["bytes"] == len(DATA)
    (clear,), (closed,) = on_disk(tmp_path / "plain"), on_disk(tmp_path / "sealed")
    assert b"a.txt" in clear.read_bytes()
    assert b"a.txt" not in closed.read_bytes()
    assert DATA[:64] not in closed.read_bytes()
    rotated = files_in(tmp_path / "sealed", keys=StoreKeys(lambda: key(2) + b"\n" + key(1)))
    assert b"".join(rotated.content("ann", closed.name)) == DATA
    changed = bytearray(closed.read_bytes())
    changed[100] ^= 1
    closed.write_bytes(changed)
    with pytest.raises(ApiError, match="was changed"):
        b"".join(rotated.content("ann", closed.name))
    with pytest.raises(ApiError, match="is encrypted"):
        files_in(tmp_path / "sealed").of("ann")


def test_a_file_ends_by_its_own_age_the_settings_and_its_owners_retention(tmp_path: Path) -> None:
    now = [1000.0]
    kept = {"bob": 30, "eve": 0}
    files = files_in(tmp_path, clock_s=lambda: now[0], kept_s=lambda: kept)
    long, short, bobs = sent(files, b"1"), sent(files, b"2", age_s=60), sent(files, b"3", "bob")
    with pytest.raises(InvalidRequest) as refused:
        files.new("eve")
    assert refused.value.code == "zero_retention"
    now[0] += 30
    assert not files.of("bob")
    assert files.sweep() == 1
    now[0] += 30
    assert [one["id"] for one in files.of("ann")] == [long]
    with pytest.raises(InvalidRequest):
        files.facts("ann", short)
    now[0] += 40
    assert files.sweep() == 2
    assert not on_disk(tmp_path)
    assert bobs not in {path.name for path in on_disk(tmp_path)}


def test_files_of_an_owner_that_arrive_at_once_share_the_room(tmp_path: Path) -> None:
    files = files_in(tmp_path, owner_bytes=5 * MIB)
    first, second = files.new("ann"), files.new("ann")
    first.write(bytes(3 * MIB))
    second.write(bytes(3 * MIB))
    first.keep("a", "user_data")
    with pytest.raises(InvalidRequest) as refused:
        second.keep("b", "user_data")
    assert (refused.value.status, refused.value.code) == (413, "files_full")
    second.drop()
    assert len(files.of("ann")) == 1
    sent(files, bytes(4 * MIB), owner="bob")
    files = files_in(tmp_path, owner_bytes=(LOOK_BLOCKS + 6) * MIB)
    third = files.new("ann")
    sent(files, bytes(5 * MIB))
    with pytest.raises(InvalidRequest):  # seen before all of it has arrived
        write_all(third, LOOK_BLOCKS + 1)
    third.drop()


def test_files_that_arrive_at_once_are_no_more_than_one_may_have(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    place = files.place("ann")
    for number in range(MOST_FILES - 1):
        (place / str(number)).touch()
    incoming = files.new("ann")
    (place / "another, which came at the same moment").touch()
    with pytest.raises(ApiError, match=f"exceed {MOST_FILES} files"):
        incoming.keep("a.txt", "user_data")
    incoming.drop()


def test_what_a_dead_server_left_of_an_upload_is_no_file_and_goes(tmp_path: Path) -> None:
    files = files_in(tmp_path, clock_s=time.time)
    cut = files.new("ann")
    cut.write(DATA)
    (part,) = on_disk(tmp_path)
    again = files_in(tmp_path, clock_s=time.time)
    assert not again.of("ann")
    again.sweep()
    assert part.exists()
    os.utime(part, (0, 0))
    again.sweep()
    assert not part.exists()
    cut.drop()


def test_an_export_has_the_content_of_every_size(tmp_path: Path) -> None:
    files = files_in(tmp_path)
    texts = {sent(files, data): data for data in (b"", b"ab", DATA)}
    lines = b"".join(files.exported("ann")).splitlines()
    rows = {row["object"]["id"]: row["content"] for row in map(orjson.loads, lines)}
    assert {name: base64.b64decode(content) for name, content in rows.items()} == texts
    (files.place("ann") / "batch_1.1.work").touch()
    assert files.erase("ann") == 3
    assert not on_disk(tmp_path)
    assert files.erase("nobody") == 0


def test_files_that_cannot_be_read_end_too_and_keep_no_other(tmp_path: Path) -> None:
    now = [time.time()]
    sealing = files_in(tmp_path, keys=StoreKeys(lambda: key(1)), clock_s=lambda: now[0])
    sent(sealing, b"sealed")
    (sealing.place("ann") / f"file-{'0' * 24}").write_bytes(b"xy")  # as a fault of the disk left it
    files = files_in(tmp_path, clock_s=lambda: now[0])
    sent(files, b"clear", age_s=60)
    now[0] += 61
    assert files.sweep() == 1
    now[0] += 40
    assert files.sweep() == 2


def test_a_file_that_ends_during_an_export_is_left_out_of_it(tmp_path: Path) -> None:
    now = [1000.0]
    files = files_in(tmp_path, clock_s=lambda: now[0])
    long = sent(files, b"1")
    now[0] += 10
    sent(files, b"2", age_s=10)
    exported = files.exported("ann")
    begun = next(exported)
    now[0] += 10
    (row,) = (begun + b"".join(exported)).splitlines()
    assert orjson.loads(row)["object"]["id"] == long


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_keeps_nothing_of_an_upload(tmp_path: Path) -> None:
    incoming = files_in(tmp_path).new("ann")
    full: io.BufferedWriter = io.BufferedWriter(io.FileIO("/dev/full", "w"))
    full.write(b"x")
    part, incoming._file = incoming._file, full  # private: a disk that is full at the last write
    part.close()
    incoming.drop()
    assert not on_disk(tmp_path)

"""A file of keys that is watched, swapped, broken and written by several."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.asgi import until
from tests.support.turns import turn
from trt_responses.features.limits.audit import Audit
from trt_responses.features.limits.key_file import LOOK_S, WatchedKeys, changing, read_file
from trt_responses.features.limits.keys import Key, KeyFault, KeyRing, digest_of, write_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def key(secret: str, owner: str = "ann") -> Key:
    return Key(owner=owner, name=secret, sha256=digest_of(secret))


class Watched:
    """A file of keys, and who looks at it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self.ring = KeyRing(from_file=True)
        self.audit = Audit(folder / "audit.jsonl")
        self.file = WatchedKeys(self.path, self.ring, self.audit)

    def write(self, *secrets: str) -> None:
        """In place. A file of another size differs even where file times are coarse."""
        self.path.write_bytes(write_keys(map(key, secrets)))

    def known(self, *secrets: str) -> list[str]:
        return [secret for secret in secrets if self.ring.owner_of(secret) == "ann"]

    def acts(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.audit.path.read_text().splitlines()]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    made = Watched(tmp_path)
    made.write("a")
    made.file.load()
    return made


def test_a_file_that_is_written_anew_is_loaded_at_the_next_look(watched: Watched) -> None:
    assert watched.known("a", "bb") == ["a"]
    watched.write("bb")
    watched.file.look()
    assert watched.known("a", "bb") == ["bb"]
    last = watched.acts()[-1]
    assert (last["act"], last["added"], last["removed"]) == ("keys.loaded", ["ann/bb"], ["ann/a"])


def test_a_file_whose_name_is_not_utf_8_is_noted_too(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    audit.tell("keys.new", file="keys\udcff.json")
    assert json.loads(audit.path.read_bytes())["file"] == "keys?.json"


def test_a_file_that_stays_is_not_read_again(watched: Watched) -> None:
    watched.file.look()
    watched.file.look()
    assert len(watched.acts()) == 1


def test_a_link_that_is_swapped_is_a_change_as_kubernetes_makes_it(tmp_path: Path) -> None:
    for version, secret in (("1", "a"), ("2", "b")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "keys.json").write_bytes(write_keys([key(secret)]))
        os.utime(tmp_path / version / "keys.json", (1, 1))  # nothing but the inode tells them apart
    (tmp_path / "data").symlink_to("1")
    (tmp_path / "keys.json").symlink_to("data/keys.json")
    made = Watched(tmp_path)
    made.file.load()
    (tmp_path / "fresh").symlink_to("2")
    (tmp_path / "fresh").rename(tmp_path / "data")
    made.file.look()
    assert made.known("a", "b") == ["b"]


@pytest.mark.parametrize("broken", [b"", b"{", b'{"keys": [{}]}', None, Path.mkdir, os.mkfifo])
def test_a_broken_file_keeps_the_keys_and_says_so_once(
    watched: Watched,
    broken: bytes | Callable[[Path], object] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if isinstance(broken, bytes):
        watched.path.write_bytes(broken)
    else:
        watched.path.unlink()
        (broken or Path.exists)(watched.path)
    for _ in range(3):
        watched.file.look()
    assert watched.known("a") == ["a"]
    assert watched.file.fault
    assert [act["act"] for act in watched.acts()] == ["keys.loaded", "keys.refused"]
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    fresh = watched.path.with_name("fresh")
    fresh.write_bytes(write_keys([key("b")]))
    if watched.path.is_dir():
        watched.path.rmdir()
    fresh.replace(watched.path)
    watched.file.look()
    assert watched.known("a", "b") == ["b"]
    assert watched.file.fault is None


def test_the_file_is_looked_at_every_second() -> None:
    assert LOOK_S == 1.0, "twice of it is what a removed key has left at most"


def test_it_is_watched_while_its_server_lives(watched: Watched) -> None:
    asked: list[float] = []

    async def sleep(delay_s: float) -> None:
        asked.append(delay_s)
        await turn()

    async def story() -> None:
        file = WatchedKeys(watched.path, watched.ring, watched.audit, sleep)
        async with file.life():
            watched.write("bb")
            await until(lambda: watched.known("bb") == ["bb"])
            watched.path.write_bytes(b"{")
            await until(lambda: file.fault is not None)
            watched.write("c")
            await until(lambda: watched.known("c") == ["c"])
        looks = len(asked)
        await turn()
        assert len(asked) == looks

    asyncio.run(story())
    assert set(asked) == {LOOK_S}


def test_an_audit_file_that_cannot_be_written_does_not_keep_a_key_alive(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.audit.path.unlink()
    watched.audit.path.mkdir()
    watched.write("b")
    watched.file.look()
    assert watched.known("a", "b") == ["b"]
    assert str(watched.audit.path) in caplog.text


def test_a_file_that_has_no_keys_stays_open_to_others(watched: Watched) -> None:
    """A path that names another program's file by mistake does that program no harm."""
    watched.path.write_text("#!/bin/sh")
    watched.path.chmod(0o755)
    with pytest.raises(KeyFault):
        watched.file.load()
    assert watched.path.stat().st_mode & 0o777 == 0o755
    watched.write("a")
    watched.file.load()
    assert watched.path.stat().st_mode & 0o777 == 0o750


def test_a_change_keeps_the_mode_of_the_file_and_the_link_to_it(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "keys.json"
    real.write_bytes(write_keys([]))
    real.chmod(0o640)
    link.symlink_to(real)
    with changing(link) as write:
        write([key("a")])
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert read_file(link)[1] == (key("a"),)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys.json", "real.json"]


def test_a_fresh_file_is_its_writers_alone(tmp_path: Path) -> None:
    with changing(tmp_path / "new" / "keys.json") as write:
        write([key("a")])
    assert (tmp_path / "new" / "keys.json").stat().st_mode & 0o777 == 0o600


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(write_keys([key("a")]))
    (tmp_path / f".keys.json.{os.getpid()}").touch()  # in the way of what would be written
    with pytest.raises(FileExistsError), changing(path) as write:
        write([])
    assert read_file(path)[1] == (key("a"),)


@contextmanager
def full_behind(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes, as on a full disk: the write before that is short."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_change_that_does_not_fit_on_the_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(write_keys([key("a")]))
    with full_behind(200), pytest.raises(OSError, match="File too large"), changing(path) as write:
        write([key("a"), key("b")])
    assert read_file(path)[1] == (key("a"),)
    assert list(tmp_path.iterdir()) == [path]


def test_a_line_of_the_audit_file_that_does_not_fit_on_the_disk_is_a_fault(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    with full_behind(20), pytest.raises(OSError, match="File too large"):
        audit.tell("keys.new", by="ann")
    audit.tell("keys.new", by="bob")
    assert json.loads(audit.path.read_text().splitlines()[-1])["by"] == "bob"


def _add_ten(path: Path, writer: int) -> None:
    for number in range(10):
        with changing(path) as write:
            known = read_file(path)[1]
            write([*known, key(f"{writer}-{number}")])


def test_keys_that_several_writers_add_at_once_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(write_keys([]))
    with ThreadPoolExecutor(4) as writers:
        for writer in [writers.submit(_add_ten, path, number) for number in range(4)]:
            writer.result()
    assert len(read_file(path)[1]) == 40


def test_a_file_that_is_not_there_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(KeyFault, match="No such file"):
        read_file(tmp_path / "absent")

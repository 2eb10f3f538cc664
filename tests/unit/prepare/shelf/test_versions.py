"""Versions of an engine: numbers, the promoted one, and a journal that is true after any death."""

from __future__ import annotations

import fcntl
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.cards import carded
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.shelf import locks, promotion, shelf, versions
from trt_responses.prepare.shelf.card import read_card, write_card
from trt_responses.prepare.shelf.locks import changing, locked, mark_served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE, TWO, THREE, FOUR = (f"{place}" * 12 for place in "abcd")


def build(engines_dir: Path, version: str) -> int | None:
    """A version as a build leaves it."""
    home = engines_dir / "mine"
    home.mkdir(exist_ok=True)
    number = versions.new_number(home, version)
    card, _ = carded(engines_dir, version=version, number=number)
    versions.promote_first(home, [card])
    return card.number


def served(engines_dir: Path) -> str:
    return shelf.select(engines_dir, "mine").card.label


def acts(engines_dir: Path) -> list[tuple[str, int | None]]:
    return [(change.act, change.number) for change in versions.journal(engines_dir / "mine")]


def test_the_first_version_is_promoted_and_a_later_one_when_somebody_says_so(
    tmp_path: Path,
) -> None:
    assert [build(tmp_path, version) for version in (ONE, TWO, THREE)] == [1, 2, 3]
    assert served(tmp_path) == "mine@1"
    promotion.promote(tmp_path, "mine@2", "it is better")
    promotion.promote(tmp_path, f"mine@{THREE}")
    assert served(tmp_path) == "mine@3"
    for back in ("mine@2", "mine@1"):
        assert promotion.rollback(tmp_path, "mine", "it was not").label == back
        assert served(tmp_path) == back
    with pytest.raises(PrepareError, match="has no earlier promoted version"):
        promotion.rollback(tmp_path, "mine")
    assert acts(tmp_path) == [
        *(("built", 1), ("promoted", 1), ("built", 2), ("built", 3)),
        *(("promoted", 2), ("promoted", 3), ("rolled back", 2), ("rolled back", 1)),
    ]
    reasons = [c.reason for c in versions.journal(tmp_path / "mine") if c.act == "promoted"]
    assert reasons == ["the first version", "it is better", ""]
    entries = {e.label: e.promoted for e in shelf.entries(tmp_path)}
    assert entries == {"mine@1": True, "mine@2": False, "mine@3": False}


def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    for version in (ONE, TWO):
        build(tmp_path, version)
    shelf.remove(tmp_path, "mine@2")
    assert build(tmp_path, THREE) == 3
    assert build(tmp_path, TWO) == 4
    assert shelf.find(tmp_path, "mine@4").name == TWO
    with pytest.raises(PrepareError, match=r"no version 2.*mine@"):
        shelf.find(tmp_path, "mine@2")


def test_engines_of_before_there_were_numbers_are_served_and_get_theirs_at_the_next_change(
    tmp_path: Path,
) -> None:
    for version, day in ((TWO, 20), (ONE, 21)):
        carded(tmp_path, version=version, built_at=f"2026-11-{day}T00:00:00+00:00")
    assert shelf.select(tmp_path, "mine").card.version == ONE
    assert shelf.select(tmp_path, f"mine/{TWO}").card.version == TWO
    home = tmp_path / "mine"
    versions.adopt(home)
    assert served(tmp_path) == "mine@2"
    assert read_card(home / TWO).number == 1
    before = versions.journal(home)
    versions.adopt(home)
    assert versions.journal(home) == before
    assert build(tmp_path, THREE) == 3
    assert served(tmp_path) == "mine@2"


def test_what_is_not_whole_is_not_promoted_and_what_is_promoted_is_not_removed(
    tmp_path: Path,
) -> None:
    for version in (ONE, TWO):
        build(tmp_path, version)
    (tmp_path / "mine" / TWO / MODEL).write_bytes(b"half")
    with pytest.raises(PrepareError, match=r"mine@2: model.gguf: found 4 bytes"):
        promotion.promote(tmp_path, "mine@2")
    with pytest.raises(PrepareError, match="promote another first"):
        shelf.remove(tmp_path, "mine@1")
    assert served(tmp_path) == "mine@1"
    planned, _ = carded(tmp_path, version=THREE, status="planned", number=3)
    write_card(tmp_path / "mine" / THREE, planned)
    with pytest.raises(PrepareError, match="says planned"):
        promotion.promote(tmp_path, "mine@3")


def test_a_promoted_version_that_is_gone_is_said_and_not_replaced_in_silence(
    tmp_path: Path,
) -> None:
    for version in (ONE, TWO):
        build(tmp_path, version)
    promotion.promote(tmp_path, "mine@2")
    (tmp_path / "mine" / TWO / "card.json").unlink()
    (tmp_path / "mine" / TWO / MODEL).unlink()
    (tmp_path / "mine" / TWO).rmdir()
    with pytest.raises(PrepareError, match=r"no version 2.*engine promote mine N"):
        served(tmp_path)
    assert promotion.promote(tmp_path, "mine@1").label == "mine@1"
    assert served(tmp_path) == "mine@1"


def test_pruning_keeps_the_promoted_one_the_one_before_it_and_the_newest(tmp_path: Path) -> None:
    for day, version in enumerate((ONE, TWO, THREE, FOUR), 20):
        build(tmp_path, version)
        card = read_card(tmp_path / "mine" / version)
        built = f"2026-11-{day}T00:00:00+00:00"
        card = type(card)(**{f: getattr(card, f) for f in card.__slots__} | {"built_at": built})
        write_card(tmp_path / "mine" / version, card)
    promotion.promote(tmp_path, "mine@2")
    would = promotion.prune(tmp_path, "mine", 1, rehearse=True)
    assert [entry.label for entry in would] == ["mine@3"]
    assert [e.label for e in promotion.prune(tmp_path, "mine", 0)] == ["mine@4", "mine@3"]
    assert [e.label for e in shelf.entries(tmp_path)] == ["mine@2", "mine@1"]


def test_pruning_keeps_what_a_rollback_goes_to_though_one_between_is_gone(tmp_path: Path) -> None:
    for version in (ONE, TWO, THREE):
        build(tmp_path, version)
    for number in (2, 3):
        promotion.promote(tmp_path, f"mine@{number}")
    shelf.remove(tmp_path, "mine@2")
    assert promotion.prune(tmp_path, "mine", 0) == []
    assert promotion.rollback(tmp_path, "mine").label == "mine@1"


def test_a_build_keeps_nobody_from_a_promotion_or_a_rollback(tmp_path: Path) -> None:
    for version in (ONE, TWO):
        build(tmp_path, version)
    with locked(tmp_path / "mine"):
        assert promotion.promote(tmp_path, "mine@2").label == "mine@2"
        assert promotion.rollback(tmp_path, "mine").label == "mine@1"
        with pytest.raises(PrepareError, match=r"another process .* wait until it is done"):
            promotion.prune(tmp_path, "mine", 0)
        assert [e.label for e in promotion.prune(tmp_path, "mine", 0, rehearse=True)] == ["mine@2"]


def test_who_changes_versions_at_the_same_time_waits_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path, ONE)
    # patched: the lock would be waited for
    monkeypatch.setattr(locks, "CHANGES_S", 0.0)
    with (tmp_path / "mine" / locks.CHANGES).open("a+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(PrepareError, match="changes which version is served"):
            build(tmp_path, TWO)
    assert build(tmp_path, TWO) == 2


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for lock in (changing, locked):
        with pytest.raises(PrepareError, match=r"none cannot be written \(No such file"):
            lock(tmp_path / "none").__enter__()


@contextmanager
def room_in(journal: Path, size_bytes: int) -> Iterator[None]:
    """No file may be longer than the journal and so many bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = journal.stat().st_size + size_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room_bytes", [0, 20])
def test_on_a_full_disk_a_promotion_is_whole_and_its_line_comes_later(
    tmp_path: Path, room_bytes: int
) -> None:
    for version in (ONE, TWO, THREE):
        build(tmp_path, version)
    home = tmp_path / "mine"
    journal = home / versions.JOURNAL
    before = journal.read_bytes()
    with room_in(journal, room_bytes):
        assert promotion.promote(tmp_path, "mine@2", "at noon").label == "mine@2"
        assert served(tmp_path) == "mine@2"
        with pytest.raises(PrepareError, match=r"journal\.jsonl cannot be written"):
            promotion.promote(tmp_path, "mine@3")
        assert served(tmp_path) == "mine@2"
        with pytest.raises(PrepareError, match=r"journal\.jsonl cannot be written"):
            versions.new_number(home, FOUR)
        assert journal.read_bytes() == before, "no line is there in part"
    promotion.promote(tmp_path, "mine@3")
    assert build(tmp_path, FOUR) == 4
    assert acts(tmp_path)[-3:] == [("promoted", 2), ("promoted", 3), ("built", 4)]


def test_a_damaged_pointer_harms_no_other_engine_and_is_mended_by_a_promotion(
    tmp_path: Path,
) -> None:
    for version in (ONE, TWO):
        build(tmp_path, version)
    (tmp_path / "mine" / versions.POINTER).write_bytes(b"x")
    assert [entry.promoted for entry in shelf.entries(tmp_path)] == [False, False]
    with pytest.raises(PrepareError, match=r"promoted\.json is damaged; .* promote mine N"):
        shelf.select(tmp_path, "mine")
    assert build(tmp_path, THREE) == 3
    assert promotion.promote(tmp_path, "mine@2").label == "mine@2"
    assert served(tmp_path) == "mine@2"


def test_an_engine_of_which_a_server_has_a_version_is_not_removed(tmp_path: Path) -> None:
    for version in (ONE, TWO):
        build(tmp_path, version)
    with mark_served(tmp_path / "mine" / ONE):
        with pytest.raises(PrepareError, match=r"mine@1 is loaded by a server"):
            shelf.remove(tmp_path, "mine")
        assert len(shelf.entries(tmp_path)) == 2
    assert len(shelf.remove(tmp_path, "mine")) == 2


def test_what_a_server_has_loaded_is_not_pruned(tmp_path: Path) -> None:
    for version in (ONE, TWO, THREE):
        build(tmp_path, version)
    home = tmp_path / "mine"
    with mark_served(home / TWO), mark_served(home / TWO):  # by two servers
        assert [e.label for e in promotion.prune(tmp_path, "mine", 0)] == ["mine@3"]
    assert [e.label for e in promotion.prune(tmp_path, "mine", 0)] == ["mine@2"]
    assert [e.label for e in shelf.entries(tmp_path)] == ["mine@1"]


CHILD = """
import os, signal, sys
from pathlib import Path
from trt_responses.prepare.shelf import promotion
from trt_responses.prepare.shelf import versions
write, append = versions.write_whole, versions._append
def dying(*given):
    os.kill(os.getpid(), signal.SIGKILL)
def dying_after(*given):
    write(*given)
    dying()
match sys.argv[1]:
    case "before the pointer": versions.write_whole = dying
    case "after the pointer": versions.write_whole = dying_after
    case "before the line": versions._append = dying
promotion.promote(Path(sys.argv[2]), "mine@2", "at noon")
"""


@pytest.mark.parametrize(
    ("where", "then"),
    [
        ("before the pointer", "mine@1"),
        ("after the pointer", "mine@2"),
        ("before the line", "mine@2"),
    ],
)
def test_a_promotion_that_is_killed_has_happened_or_not_and_the_journal_says_which(
    tmp_path: Path, where: str, then: str
) -> None:
    for version in (ONE, TWO):
        build(tmp_path, version)
    child = subprocess.run([sys.executable, "-c", CHILD, where, str(tmp_path)], check=False)
    assert child.returncode == -signal.SIGKILL
    assert served(tmp_path) == then
    told = [c for c in versions.journal(tmp_path / "mine") if c.reason == "at noon"]
    assert len(told) == (then == "mine@2")
    build(tmp_path, THREE)  # the next to write adds what the journal lacks, once
    text = (tmp_path / "mine" / versions.JOURNAL).read_text("utf-8")
    assert text.count("at noon") == len(told)
    assert served(tmp_path) == then


def test_a_line_that_was_cut_short_is_no_line_and_harms_no_other(tmp_path: Path) -> None:
    build(tmp_path, ONE)
    path = tmp_path / "mine" / versions.JOURNAL
    with path.open("ab") as file:
        file.write(b'{"at": "2026-11-2')
    assert build(tmp_path, TWO) == 2
    assert acts(tmp_path) == [("built", 1), ("promoted", 1), ("built", 2)]

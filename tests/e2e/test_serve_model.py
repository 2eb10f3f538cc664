"""`serve MODEL` in an empty directory: one command from a file, a directory or the hub to an
answer, a second start that prepares nothing, and breaks after which the next try continues."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.fake_hub import fake_hub
from tests.support.serve_command import Command, serve
from tests.support.tiny_gguf import write_tiny
from tests.support.tiny_hf import write_tiny_hf
from trt_responses.cli.main import main
from trt_responses.prepare.llamacpp.move import movable
from trt_responses.prepare.shelf.card import read_card, write_card

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.fake_hub import FakeHub

pytestmark = pytest.mark.xdist_group("serve_model")  # one process loads its engines


MODEL = "owner/Tiny-GGUF"
PREPARING = "Preparing tiny"
CHUNK_BYTES = 10_485_760
"""What the hub's package writes at once."""
NO_HUB = {"HF_ENDPOINT": "http://127.0.0.1:9"}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model's file, with bytes behind it that make it longer than one write."""
    path = write_tiny(tmp_path_factory.mktemp("published") / "tiny.gguf", "qwen3")
    return path.read_bytes() + bytes(2 * CHUNK_BYTES)


@pytest.fixture
def hub(published: bytes) -> Iterator[FakeHub]:
    files = {"tiny-Q8_0.gguf": published, "tiny-F16.gguf": b"GGUF", "README.md": b"words"}
    with fake_hub(MODEL, files) as served:
        yield served


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory and cache for commands within this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)


def answers(command: Command) -> None:
    response = command.answer()
    assert response["model"].startswith("tiny")
    assert response["usage"]["output_tokens"] > 0


def test_a_file_is_served_by_one_command_and_prepared_once(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", "qwen3")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with Command(tmp_path, "tiny.gguf") as half:
        assert half.ended() == 1
        assert "the download may be incomplete" in half.printed
        assert len(half.printed.splitlines()) == 1
    path.write_bytes(whole)
    with serve(tmp_path, "tiny.gguf") as command:
        answers(command)
        assert "Serving takes" in command.printed
        assert PREPARING in command.printed
    with serve(tmp_path, "./tiny.gguf") as command:
        answers(command)
        assert "Preparing" not in command.printed


def test_a_directory_is_served_by_one_command_and_then_by_its_engines_name(tmp_path: Path) -> None:
    write_tiny_hf(tmp_path / "tiny")
    with serve(tmp_path, "tiny") as command:
        answers(command)
        assert "more of disk" in command.printed
        assert PREPARING in command.printed
    shutil.rmtree(tmp_path / "tiny")
    with serve(tmp_path, "tiny") as command:
        answers(command)
        assert "Preparing" not in command.printed


def test_a_model_of_the_hub_continues_where_it_was_killed_and_needs_no_hub_again(
    tmp_path: Path, hub: FakeHub, published: bytes
) -> None:
    hub.stall_after = CHUNK_BYTES + 1
    place = {"HF_ENDPOINT": hub.url}
    with Command(tmp_path, MODEL, env=place) as killed:
        blobs = tmp_path / ".cache/huggingface/hub/models--owner--Tiny-GGUF/blobs"
        killed.until(lambda: any(p.stat().st_size >= CHUNK_BYTES for p in blobs.glob("*.part")))
        killed.kill()
        assert f"Fetching {MODEL}: " in killed.printed
        assert "of memory for the weights" in killed.printed
    hub.stall_after = None
    with Command(tmp_path, f"--engine={MODEL}:q8_0", env=place) as killed:
        killed.until_printed("verify\n")
        killed.kill()
    assert hub.ranges[-1] == f"bytes={CHUNK_BYTES}-"
    assert hub.sent_bytes < 2 * len(published)
    with serve(tmp_path, MODEL, env=NO_HUB) as command:
        answers(command)
        assert "copy" not in command.printed  # that was finished before
    shutil.rmtree(tmp_path / ".cache")
    with serve(tmp_path, MODEL, env=NO_HUB) as command:
        assert "Preparing" not in command.printed


def test_with_move_one_copy_stays_and_the_same_command_finds_it(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", "qwen3")
    in_place, inode = movable(path, tmp_path), path.stat().st_ino
    with Command(tmp_path, "tiny.gguf", "--move") as killed:
        killed.until_printed("verify\n")
        killed.kill()
    with serve(tmp_path, "tiny.gguf", "--move") as command:
        answers(command)
        assert "moved" in command.printed
    assert not path.exists()
    assert not [*tmp_path.glob("*.moving")]
    (served,) = (tmp_path / "engines").glob("*/*/model.gguf")
    assert served.stat().st_nlink == 1
    assert not in_place or served.stat().st_ino == inode
    card = read_card(served.parent)
    assert card.dialect is not None
    older = replace(card.dialect, form={"name": "qwen3", "gone": True})  # of another release
    packages = {**card.libraries, "xllamacpp": "1.0"}
    write_card(served.parent, replace(card, libraries=packages, dialect=older))
    with serve(tmp_path, "tiny.gguf", "--move") as command:
        answers(command)
        assert "Preparing" not in command.printed
        assert "checking it again" in command.printed
    assert read_card(served.parent).libraries == card.libraries


def test_a_disk_that_is_full_is_one_sentence_and_nothing_is_lost(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", "qwen3")
    with Command(tmp_path, "tiny.gguf") as first:
        first.until_printed("verify\n")  # it wrote the vocabulary, which is larger
        first.kill()
    shutil.rmtree(tmp_path / "engines")
    before = path.read_bytes()
    with Command(tmp_path, "tiny.gguf", largest_bytes=100_000) as full:
        assert full.ended() == 1
        assert "writing stopped (" in full.printed
        assert "Traceback" not in full.printed
    assert path.read_bytes() == before
    assert not [*(tmp_path / "engines").glob("*/*/*.part")]


@pytest.mark.parametrize(
    ("typed", "status", "sentence"),
    [
        ("owner/other", 2, "MODEL: owner/other: no such model or revision on the hub"),
        (f"{MODEL}:Q2_K", 2, "found none of Q2_K, expected one of tiny-F16.gguf, tiny-Q8_0.gguf"),
        ("absent.gguf", 2, "nor an existing file or directory"),
        ("absent", 2, "MODEL: No engine named absent"),
    ],
)
def test_a_wrong_model_is_one_sentence(
    elsewhere: None,
    hub: FakeHub,
    typed: str,
    status: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    assert main(["serve", typed, "--port", "0"]) == status
    printed = capsys.readouterr().err
    assert sentence in printed
    assert len(printed.splitlines()) == 1


def test_a_directory_is_not_moved(
    elsewhere: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tiny_hf(tmp_path / "tiny")
    assert main(["serve", "tiny", "--move", "--port", "0"]) == 2
    assert "--move: tiny is not one .gguf file" in capsys.readouterr().err
    assert (tmp_path / "tiny" / "config.json").exists()


def test_without_a_network_it_is_one_sentence(
    elsewhere: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", NO_HUB["HF_ENDPOINT"])
    assert main(["serve", MODEL, "--port", "0"]) == 1
    printed = capsys.readouterr().err
    assert f"{MODEL}: the download failed" in printed
    assert "run the same command again" in printed
    assert len(printed.splitlines()) == 1

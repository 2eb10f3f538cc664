"""What a user means by a model, and which engine was prepared from it before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.cards import SHA, carded
from trt_responses.prepare.digests import DIGESTS
from trt_responses.prepare.faults import WrongInput
from trt_responses.prepare.hub import HubId, chosen_gguf
from trt_responses.prepare.model import engine_name, meaning, prepared_from
from trt_responses.prepare.shelf.card import Source, SourceFile

if TYPE_CHECKING:
    from collections.abc import Sequence

HOME = Path("engines")
MODEL = HubId("owner/model")
MEANT: tuple[tuple[str, str | Path | HubId], ...] = (
    # typed; what it means in `place`
    ("mine", "mine"),
    ("mine@1", "mine@1"),
    ("mine@0123456789ab", "mine@0123456789ab"),
    ("mine/0123456789ab", "mine/0123456789ab"),
    ("demo", "demo"),
    ("demo-onnx", "demo-onnx"),
    ("grpc://host:1/model", "grpc://host:1/model"),
    ("triton://host:1/model", "triton://host:1/model"),
    ("engines/mine", "mine"),
    ("./engines/mine/", "mine"),
    ("engines/mine/0123456789ab", "mine@0123456789ab"),
    ("./mine", Path("mine")),
    ("half", Path("half")),  # its engine was not finished
    ("folder", Path("folder")),
    ("a.gguf", Path("a.gguf")),
    ("./a.gguf", Path("a.gguf")),
    ("files", Path("files/m-q8_0.gguf")),
    ("folder/sub", Path("folder/sub")),
    ("owner/model", MODEL),
    ("owner/model@v1", HubId("owner/model", None, "v1")),
    ("owner/model:Q8_0", HubId("owner/model", "Q8_0")),
    ("owner/model:Q8_0@v1", HubId("owner/model", "Q8_0", "v1")),
    ("owner/model:m.gguf", HubId("owner/model", "m.gguf")),
    ("owner/model/m.gguf", HubId("owner/model", "m.gguf")),
    ("hf.co/owner/model:Q8_0", HubId("owner/model", "Q8_0")),
    ("https://huggingface.co/owner/model", MODEL),
)
FAULTS = (
    ("absent", "No engine named absent in engines; existing: half, mine"),
    ("absent@3", "No engine named absent"),
    ("b.gguf", "'b.gguf' is not an engine name, nor an existing file or directory"),
    ("./owner/model", "nor an existing file or directory"),
    ("~/nothing/here", "nor an existing file or directory"),
    ("~nobody-here/model", "nor an existing file or directory"),
    ("x" * 300, "nor an existing file or directory"),
    ("http://host/model", "nor an existing file or directory"),
    ("", "nor an existing file or directory"),
    ("two words", "nor an existing file or directory"),
    ("several", "name one file"),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an engine `mine`, and directories and files of several names."""
    monkeypatch.chdir(tmp_path)
    carded(HOME, "mine", number=1)
    Path("engines/half/0123456789ab").mkdir(parents=True)
    for name in ("mine", "half", "folder", "folder/sub", "files", "several", "owner"):
        Path(name).mkdir()
    for name in ("a.gguf", "files/m-q8_0.gguf", "files/mmproj-f16.gguf"):
        Path(name).write_bytes(b"GGUF")
    for name in ("a-q2_k.gguf", "a-q3_k.gguf"):
        Path("several", name).write_bytes(b"GGUF")
    return tmp_path


@pytest.mark.parametrize(("typed", "meant"), MEANT, ids=[typed for typed, _ in MEANT])
def test_every_spelling_means_one_thing(typed: str, meant: str | Path | HubId, place: Path) -> None:
    assert meaning(typed, HOME) == meant


@pytest.mark.parametrize(("typed", "reason"), FAULTS, ids=[typed for typed, _ in FAULTS])
def test_other_spellings_are_refused_with_what_is_accepted(
    typed: str, reason: str, place: Path
) -> None:
    with pytest.raises(WrongInput, match=reason):
        meaning(typed, HOME)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Qwen3-0.6B-Q8_0", "qwen3-0.6b-q8_0"),
        ("My Model (1)", "my-model-1"),
        ("..hidden..", "hidden"),
        ("日本", "model"),
        ("x" * 300, "x" * 100),
    ],
)
def test_every_file_gives_a_valid_engine_name(typed: str, name: str) -> None:
    assert engine_name(typed) == name


SPLIT = ("m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf")


@pytest.mark.parametrize(
    ("names", "file", "chosen"),
    [
        (["m.gguf", "README.md"], None, "m.gguf"),
        (["m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-F16.gguf"], None, "m-Q4_K_M.gguf"),
        (["m-Q8_0.gguf", "m-F16.gguf"], None, "m-Q8_0.gguf"),
        (["m-Q4_K_M.gguf", "m-mxfp4.gguf"], None, "m-mxfp4.gguf"),
        (["m-Q8_0.gguf", "mmproj-m-Q8_0.gguf"], None, "m-Q8_0.gguf"),
        ([*SPLIT, "m-F16.gguf"], None, SPLIT[0]),
        (["m-Q8_0.gguf", "m-F16.gguf"], "f16", "m-F16.gguf"),
        (["m-Q8_0.gguf", "m-F16.gguf"], "m-F16.gguf", "m-F16.gguf"),
        (["m-Q8_0.gguf", "m-F16.gguf"], "m-F16", "m-F16.gguf"),
        (["m-Q2.gguf", "m-Q3.gguf"], None, "name one file, owner/model:FILE; there are m-Q2.gguf"),
        (["m-Q8_0.gguf"], "Q4_K_M", "found none of Q4_K_M, expected one of m-Q8_0.gguf"),
        ([], None, "there are none"),
    ],
)
def test_one_of_several_files_is_chosen_or_all_are_named(
    names: Sequence[str], file: str | None, chosen: str
) -> None:
    wanted = HubId("owner/model", file)
    if chosen.endswith(".gguf") and " " not in chosen:
        assert chosen_gguf(names, wanted) == chosen
    else:
        with pytest.raises(WrongInput, match=chosen):
            chosen_gguf(names, wanted)


def remembered(home: Path, *paths: Path) -> None:
    stamps = {}
    for path in paths:
        status = path.stat()
        stamps[f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"] = SHA
    (home / DIGESTS).write_text(json.dumps(stamps))


def engines_from(source: Path | HubId) -> list[str]:
    return [card.name for _, card in prepared_from(HOME, source)]


def test_an_engine_is_found_by_its_file_until_the_file_changes(place: Path) -> None:
    path = Path("a.gguf")
    source = Source("a", "gguf", (SourceFile("a.gguf", 4, SHA),))
    carded(HOME, "other", source=source)
    assert engines_from(path) == []
    remembered(HOME / "other", path)
    assert engines_from(path) == ["other"]
    assert engines_from(Path("files/m-q8_0.gguf")) == []
    path.write_bytes(b"GGUF, a later one")
    assert engines_from(path) == []
    path.unlink()
    assert engines_from(path) == ["other"]  # moved into the engine
    assert meaning("a.gguf", HOME) == path


def test_an_engine_is_found_by_its_hubs_model_when_the_cache_is_empty(place: Path) -> None:
    blobs = place / "hub/models--owner--model/blobs"
    blobs.mkdir(parents=True)
    (blobs / "etag").write_bytes(b"GGUF")
    carded(HOME, "other", source=Source("m", "gguf", (SourceFile("m-Q8_0.gguf", 4, SHA),)))
    remembered(HOME / "other", blobs / "etag")
    (blobs / "etag").unlink()
    for file in (None, "Q8_0", "m-Q8_0.gguf"):
        assert engines_from(HubId("owner/model", file)) == ["other"]
    for other in (HubId("owner/model", "F16"), HubId("owner/mode"), MODEL._replace(revision="v")):
        assert engines_from(other) == []


def test_of_several_engines_of_one_source_the_promoted_and_newest_come_first(place: Path) -> None:
    path, source = Path("a.gguf"), Source("a", "gguf", (SourceFile("a.gguf", 4, SHA),))
    for name, built in (("old", "2026-01-01"), ("new", "2026-02-01")):
        carded(HOME, name, source=source, built_at=f"{built}T00:00:00+00:00")
        remembered(HOME / name, path)
    assert engines_from(path) == ["new", "old"]

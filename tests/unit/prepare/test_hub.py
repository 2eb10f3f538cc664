"""Checkpoints by their name on the hub: found, or fetched from a hub on loopback."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from tests.support.fake_hub import COMMIT, fake_hub
from trt_responses.cli.main import main
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.faults import PrepareError, WrongInput
from trt_responses.prepare.hub import (
    HubId,
    Wishes,
    cache_directory,
    cached,
    checkpoint_at,
    fetched,
    hub_id,
)
from trt_responses.prepare.llamacpp.qwen3 import check_model_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fake_hub import FakeHub

pytestmark = pytest.mark.xdist_group("hub")  # its checkpoint is made once per process

MODEL = "owner/Small-1b"
SMALL = replace(
    TINY, layers=2, hidden=32, intermediate=32, heads=2, kv_heads=1, head_dim=32, experts=2
)
CHUNK_BYTES = 10_485_760
"""What the hub's package writes at once: what came after the last whole one is fetched again."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = write_checkpoint(tmp_path_factory.mktemp("hub") / "small", Recipe(SMALL))
    own = {path.name: path.read_bytes() for path in folder.iterdir()}
    others = {"README.md": b"words", "original/config.json": b"{}", "consolidated.pt": b"\x80"}
    return own | others


@pytest.fixture
def hub(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeHub]:
    with fake_hub(MODEL, files) as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.delenv("HF_HUB_CACHE", raising=False)
        yield served


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("openai/gpt-oss-20b", HubId("openai/gpt-oss-20b")),
        ("openai/gpt-oss-20b@v1.0", HubId("openai/gpt-oss-20b", None, "v1.0")),
        ("o/m-GGUF/m-mxfp4.gguf", HubId("o/m-GGUF", "m-mxfp4.gguf")),
        ("gpt-oss-20b", None),
        ("/openai/gpt-oss-20b", None),
        ("./openai/gpt-oss-20b", None),
        ("../gpt-oss-20b", None),
        ("openai/gpt-oss-20b/original", None),
        ("openai/.hidden", None),
    ],
)
def test_a_name_of_the_hub_is_told_from_a_path(typed: str, meant: HubId | None) -> None:
    assert hub_id(typed) == meant
    assert meant is None or str(meant) == typed


def test_a_path_that_exists_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert hub_id("owner/model") is not None
    (tmp_path / "owner" / "model").mkdir(parents=True)
    assert hub_id("owner/model") is None


def test_a_user_without_a_home_has_a_cache_where_the_hub_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as the one of a number alone, in a container. `~x` is a user that the system has not."""
    for name in ("HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", "~nobody-here/hub")
    assert cache_directory() == Path("~nobody-here/hub")
    assert checkpoint_at("~nobody-here/x.gguf", print) == Path("~nobody-here/x.gguf")


@pytest.mark.slow  # 2 s: it waits before it tries again
def test_a_model_is_announced_and_fetched_and_a_broken_line_is_taken_up_again(
    hub: FakeHub, tmp_path: Path
) -> None:
    said: list[str] = []
    hub.break_after = CHUNK_BYTES + 1
    found = checkpoint_at(MODEL, said.append)
    assert found == tmp_path / f"home/hub/models--owner--Small-1b/snapshots/{COMMIT}"
    assert hub.ranges[0] == f"bytes={CHUNK_BYTES}-"
    assert f"Fetching {MODEL}: " in said[0]
    assert "about 2 s on a line of 100 Mbit/s" in said[0]
    assert open_checkpoint(found).name == "Small-1b"  # through its links into `blobs`
    assert (found / "model.safetensors").is_symlink()
    assert sorted(path.name for path in found.iterdir()) == ["config.json", "model.safetensors"]


def test_what_the_cache_holds_whole_is_asked_of_nobody(hub: FakeHub) -> None:
    found = checkpoint_at(MODEL, lambda sentence: None)
    hub.shutdown()
    sent_bytes = hub.sent_bytes
    said: list[str] = []
    assert checkpoint_at(MODEL, said.append) == found
    assert (said, hub.sent_bytes) == ([], sent_bytes)
    (found / "model.safetensors").unlink()
    assert cached(HubId(MODEL)) is None


def test_one_file_of_a_model_is_fetched_alone(hub: FakeHub) -> None:
    hub.files["small-mxfp4.gguf"] = b"GGUF" + bytes(1_000)
    found = checkpoint_at(f"{MODEL}/small-mxfp4.gguf", lambda sentence: None)
    assert found.read_bytes() == hub.files["small-mxfp4.gguf"]
    assert [path.name for path in found.parent.iterdir()] == ["small-mxfp4.gguf"]


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("owner/other", "no such model or revision on the hub"),
        (f"{MODEL}/none.gguf", "found none of none.gguf"),
    ],
)
def test_what_is_not_there_is_told_in_a_sentence(hub: FakeHub, typed: str, reason: str) -> None:
    with pytest.raises(PrepareError, match=reason):
        checkpoint_at(typed, lambda sentence: None)


def test_a_hub_that_is_not_there_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert main(["engine", "build", "--checkpoint", MODEL]) == 1
    assert f"{MODEL}: the download failed" in capsys.readouterr().err


def test_without_the_package_a_person_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(PrepareError, match=r"pip install 'huggingface_hub>=2.4,<3'"):
        checkpoint_at(MODEL, lambda sentence: None)


WISHES = Wishes(check_model_type, lambda size_bytes: f" {size_bytes} bytes.")
FOREIGN = b'{"model_type": "llama"}'


def test_a_foreign_model_is_refused_before_its_weights_are_downloaded(hub: FakeHub) -> None:
    said: list[str] = []
    hub.files["config.json"] = FOREIGN
    with pytest.raises(WrongInput, match="found 'llama', expected gpt_oss or qwen3"):
        fetched(HubId(MODEL), said.append, WISHES)
    assert not said
    assert hub.sent_bytes == len(FOREIGN)


def test_a_foreign_models_gguf_is_taken_where_there_is_one(hub: FakeHub) -> None:
    said: list[str] = []
    hub.files |= {"config.json": FOREIGN, "small-q8_0.gguf": b"GGUF" + bytes(996)}
    found = fetched(HubId(MODEL), said.append, WISHES)
    assert found.name == "small-q8_0.gguf"
    assert said[0].endswith(" 1000 bytes.")
    assert cached(HubId(MODEL, "q8_0")) == found

"""The prepared versions of an engine as a running server sees them: files, journal and pointer,
with scripted engines in the place of real ones."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.cards import carded
from tests.support.versions import scripted
from trt_responses.errors import StartupError
from trt_responses.features.rollout.loaded import Version
from trt_responses.features.rollout.shelf_builds import PreparedBuilds, gate_prompts, memory_bytes
from trt_responses.prepare.files import MODEL
from trt_responses.prepare.memory import Memory
from trt_responses.prepare.shelf import promotion, shelf, versions
from trt_responses.prepare.shelf.card import read_card
from trt_responses.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from trt_responses.prepare.shelf.card import Kind

ONE, TWO, THREE = (f"{place}" * 12 for place in "abc")


def built(engines_dir: Path, digest: str, kind: Kind = "llamacpp") -> Version:
    """A version on the shelf, as a server names it."""
    home = engines_dir / "mine"
    home.mkdir(exist_ok=True)
    number = versions.new_number(home, digest)
    libraries = {"xllamacpp": installed("xllamacpp")}
    card, _ = carded(engines_dir, version=digest, number=number, kind=kind, libraries=libraries)
    versions.promote_first(home, [card])
    return Version("mine", kind, number, digest)


def builds_in(engines_dir: Path) -> PreparedBuilds:
    settings = Settings(engines_dir=engines_dir, engine="mine")
    return PreparedBuilds("mine", settings, lambda *_: scripted())


def test_the_gate_s_prompts_are_those_of_gate_jsonl_or_the_built_in_ones(tmp_path: Path) -> None:
    assert len(gate_prompts(tmp_path)) == len(gate_prompts(tmp_path / "none")) == 6
    (tmp_path / "file").write_text("no directory")
    assert len(gate_prompts(tmp_path / "file")) == 6
    (tmp_path / "gate.jsonl").write_text('{"input": "One"}\n\n{"input": "Two"}\n')
    assert len(gate_prompts(tmp_path)) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected one JSON object a line, at least one"),
        ("[1]", "expected one JSON object a line, at least one"),
        ("{", "has a line that is not JSON"),
        ('{"input": 5}', "input"),
        (None, "cannot be read"),
    ],
)
def test_a_faulty_gate_jsonl_stops_the_start_with_its_name(
    tmp_path: Path, text: str | None, why: str
) -> None:
    path = tmp_path / "gate.jsonl"
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    with pytest.raises(StartupError, match=f"^TRT_RESPONSES_ENGINES_DIR: {path}.*{why}"):
        gate_prompts(tmp_path)


def test_the_one_to_load_is_the_promoted_one_else_the_newest_else_what_is_named(
    tmp_path: Path,
) -> None:
    one, two, three = (built(tmp_path, digest) for digest in (ONE, TWO, THREE))
    builds = builds_in(tmp_path)
    assert builds.versions() == [three, two, one]
    assert builds.find(None, one).version == three
    promotion.promote(tmp_path, "mine@2")
    assert builds.find(None, one).version == two
    assert builds.find(None, two).version == three
    assert builds.find("1", two).version == builds.find(ONE, two).version == one
    with pytest.raises(StartupError, match="no version 9"):
        builds.find("9", two)


def test_a_flipped_byte_is_found_though_size_and_time_are_the_same(tmp_path: Path) -> None:
    one, _ = built(tmp_path, ONE), built(tmp_path, TWO)
    build = builds_in(tmp_path).find("2", one)
    assert build.fault(one) is None
    model = tmp_path / "mine" / TWO / MODEL
    before = model.stat()
    first, *rest = model.read_bytes()
    model.write_bytes(bytes([first ^ 1, *rest]))
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert MODEL in str(found := build.fault(one))
    assert "SHA-256" in str(found)
    assert model.stat().st_mtime_ns == before.st_mtime_ns


def test_an_engine_on_a_gpu_is_not_loaded_beside_another(tmp_path: Path) -> None:
    one = built(tmp_path, ONE)
    build = builds_in(tmp_path).find("1", one)
    on_gpu = replace(one, kind="trtllm")
    assert "two at once are not loaded" in str(build.no_room(on_gpu, beside=True))
    assert build.no_room(on_gpu, beside=False) is None


def test_an_engine_takes_its_weights_and_the_cache_of_all_its_contexts(tmp_path: Path) -> None:
    settings = Settings(context_tokens=512, slots=3)
    card, _ = carded(tmp_path, memory_bytes=1000)
    shape = card.architecture
    assert shape is not None
    keys_and_values = 2 * shape.layers * shape.kv_heads * shape.head_dim
    assert memory_bytes(card, settings) == 1000 + 3 * 512 * keys_and_values * 2
    assert memory_bytes(replace(card, architecture=None), settings) == 2000


@pytest.mark.parametrize(("missing", "refused"), [(0, False), (1, True)])
def test_a_version_needs_room_beside_what_the_served_one_has_mapped_of_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int, refused: bool
) -> None:
    one, two = built(tmp_path, ONE), built(tmp_path, TWO)
    card = read_card(tmp_path / "mine" / TWO)
    mapped = read_card(tmp_path / "mine" / ONE).limits.memory_bytes
    free = memory_bytes(card, Settings()) + mapped - missing
    # patched: the machine's memory
    monkeypatch.setattr(
        "trt_responses.features.rollout.shelf_builds.memory", lambda: Memory(2 * free, free)
    )
    why = builds_in(tmp_path).find("2", one).no_room(one, beside=True)
    assert (why is not None) == refused
    assert why is None or f"memory: {two.label} needs" in why


@pytest.mark.parametrize(("missing", "refused"), [(0, False), (1, True)])
def test_in_the_place_of_another_a_version_has_the_memory_of_its_cache_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int, refused: bool
) -> None:
    one, _ = built(tmp_path, ONE), built(tmp_path, TWO)
    card = read_card(tmp_path / "mine" / ONE)
    cache = memory_bytes(card, Settings()) - card.limits.memory_bytes
    free = card.limits.memory_bytes - missing
    # patched: the machine's memory
    monkeypatch.setattr(
        "trt_responses.features.rollout.shelf_builds.memory", lambda: Memory(2 * cache, free)
    )
    build = builds_in(tmp_path).find("2", one)
    assert "GiB beside mine@1" in str(build.no_room(one, beside=True))
    why = build.no_room(one, beside=False)
    assert (why is not None) == refused
    assert why is None or "GiB in the place of mine@1" in why


def test_what_is_loaded_is_kept_from_being_pruned(tmp_path: Path) -> None:
    one, _ = built(tmp_path, ONE), built(tmp_path, TWO)
    loaded = builds_in(tmp_path).find("2", one).load()

    async def story() -> None:
        await loaded.start()
        assert promotion.prune(tmp_path, "mine", 0, rehearse=True) == []
        await loaded.stop()
        assert [e.label for e in promotion.prune(tmp_path, "mine", 0)] == ["mine@2"]

    asyncio.run(story())


CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.support.asgi import Client, living
from tests.support.versions import ADMIN, scripted
from trt_responses.app import create_app
from trt_responses.features.rollout.shelf_builds import PreparedBuilds
from trt_responses.features.rollout.loaded import Loaded, Version
from trt_responses.features.rollout.versions import Versions
from trt_responses.settings import Settings
from trt_responses.setup.engine import Given

async def main(engines_dir):
    first = Loaded(Version("mine", "llamacpp", 1, "a" * 12), scripted())
    settings = Settings(
        engines_dir=engines_dir, engine="mine", model="mine", admin_key="boss", data_dir=engines_dir
    )
    builds = PreparedBuilds("mine", settings, lambda *_: scripted())
    app = create_app(settings, given=Given(first, builds))
    async with living(app):
        body = b'{"version": 2, "gate": false, "reason": "at noon"}'
        await Client(app, lambda: 0).send("POST", "/admin/engines/mine/load", body, ADMIN)

Versions.promote = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.slow  # 2 s: a process that is killed, and another server
def test_a_server_that_is_killed_between_the_pointer_and_the_switch_starts_with_the_new_one(
    tmp_path: Path,
) -> None:
    for digest in (ONE, TWO):
        built(tmp_path, digest)
    command: list[Any] = [sys.executable, "-c", CHILD, tmp_path]
    child = subprocess.run(command, check=False, capture_output=True)
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()
    assert shelf.select(tmp_path, "mine").card.label == "mine@2"
    told = [(c.act, c.number, c.reason) for c in versions.journal(tmp_path / "mine")]
    assert told[-1] == ("promoted", 2, "at noon")
    assert [act for act, _, _ in told].count("loaded") == 0

"""Preparing an engine: its phases, what a killed run leaves, and the directory of engines.

About 10 s in all on one core: each of a dozen conversions writes the whole vocabulary.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts.checkpoints import TINY, Recipe, write_checkpoint
from scripts.gguf_model import planned_bytes
from tests.support.scripted.engine import Die, Scored, Script, ScriptedEngine
from trt_responses.engine import Logprob
from trt_responses.prepare import demo
from trt_responses.prepare.checkpoint.open import open_checkpoint
from trt_responses.prepare.checkpoint.safetensors import Tensor, narrow, read_tensors, write_tensors
from trt_responses.prepare.demo import demo_checkpoint, expand
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.llamacpp.build import prepare
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.pipeline import BuildTools, Built
from trt_responses.prepare.progress import Lines, megabytes, shown_on
from trt_responses.prepare.shelf import shelf
from trt_responses.prepare.shelf.card import CARD, read_card
from trt_responses.prepare.shelf.locks import locked

if TYPE_CHECKING:
    from trt_responses.prepare.checkpoint.safetensors import Array
    from trt_responses.prepare.shelf.card import Card
    from trt_responses.tokens.vocabulary import Vocabulary

pytestmark = pytest.mark.xdist_group("written vocabulary")  # 5 s, once per process

SMALL = replace(
    TINY, layers=2, hidden=32, intermediate=32, heads=2, kv_heads=1, head_dim=32, experts=2
)
ALL = ("validate", "convert", "verify")
ANSWER = (200_005, 17_196, 200_002)


def engine(directory: Path, card: Card) -> ScriptedEngine:
    assert (directory / card.files[0].name).name == "model.gguf"
    return ScriptedEngine([Script((ANSWER,))])


@dataclass
class Told:
    """A progress that remembers."""

    phases: list[tuple[str, int]] = field(default_factory=list)
    advanced: int = 0

    def phase(self, name: str, total_bytes: int = 0) -> None:
        self.phases.append((name, total_bytes))

    def advance(self, size_bytes: int) -> None:
        self.advanced += size_bytes


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("source") / "small", Recipe(SMALL))


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, vocabulary: Vocabulary
) -> Built:
    """An engine that tests look at and leave alone."""
    tools = BuildTools(vocabulary, engine_for=engine)
    return prepare(checkpoint, tmp_path_factory.mktemp("engines"), "mine", tools)


def linked(built: Built, engines_dir: Path, *names: str) -> Path:
    """Engines by other names over the same files, with lawful cards."""
    for name in names:
        home = engines_dir / name / built.card.version
        home.mkdir(parents=True)
        os.link(built.directory / "model.gguf", home / "model.gguf")
        card = json.loads((built.directory / CARD).read_text("utf-8"))
        (home / CARD).write_text(json.dumps({**card, "name": name}), "utf-8")
    return engines_dir


def test_a_build_goes_through_every_phase_and_leaves_a_verified_card(shared: Built) -> None:
    assert shared.phases == ALL
    assert read_card(shared.directory) == shared.card
    assert (shared.card.status, shared.card.greedy_ids) == ("verified", ANSWER)
    assert [file.name for file in shared.card.source.files] == ["config.json", "model.safetensors"]
    assert sorted(path.name for path in shared.directory.iterdir()) == [CARD, "model.gguf"]
    home = shared.directory.parent
    assert shelf.verify(home.parent, None, this_machine(), deep=True)[0].difference is None


def test_a_build_says_beforehand_what_it_will_do_and_take_and_a_second_says_nothing(
    tmp_path: Path, checkpoint: Path, vocabulary: Vocabulary
) -> None:
    told: list[str] = []

    class Telling(Told):
        def phase(self, name: str, total_bytes: int = 0) -> None:
            told.append(name)

    tools = BuildTools(vocabulary, Telling(), engine_for=engine, say=told.append)
    prepare(checkpoint, tmp_path, "mine", tools)
    sentence, *phases = told
    assert tuple(phases) == ALL
    source = open_checkpoint(checkpoint)
    weights, disk = megabytes(source.size_bytes), megabytes(planned_bytes(source, "bf16"))
    assert sentence == (
        f"Preparing mine (llamacpp, bf16) from {weights} of weights: "
        f"needs {disk} of disk in {tmp_path}/mine and about 5 s."
    )
    told.clear()
    prepare(checkpoint, tmp_path, "mine", tools)
    assert told == []


def test_a_second_build_finds_everything_done(
    shared: Built, checkpoint: Path, vocabulary: Vocabulary
) -> None:
    told = Told()
    tools = BuildTools(vocabulary, told, engine_for=engine)
    again = prepare(checkpoint, shared.directory.parents[1], "mine", tools)
    assert again == Built(shared.directory, shared.card, ())
    assert told.phases == []


CHILD = """
import os, sys
from pathlib import Path
from trt_responses.tokens.vocabulary import load
from trt_responses.prepare.llamacpp.build import prepare
from scripts.gguf_model import planned_bytes
from trt_responses.prepare.machine import this_machine
from trt_responses.prepare.pipeline import BuildTools
from trt_responses.prepare.progress import Silent

class Deadly(Silent):
    def phase(self, name, total_bytes=0):
        self.now = name
        if sys.argv[3] == name:
            os._exit(9)

    def advance(self, size_bytes):
        if sys.argv[3] == "inside " + self.now:
            os._exit(9)

tools = BuildTools(load(), Deadly(), engine_for=lambda path, card: os._exit(3))
prepare(Path(sys.argv[1]), Path(sys.argv[2]), "mine", tools)
"""


@pytest.mark.slow  # 11 s: three builds, each a process
def test_a_killed_build_is_no_engine_and_the_next_redoes_only_what_is_unfinished(
    tmp_path: Path, checkpoint: Path, vocabulary: Vocabulary
) -> None:
    """Four processes die, each at the next boundary; about 1.5 s each."""
    root = Path(__file__).parents[4]
    for moment in ("inside validate", "convert", "inside convert", "verify"):
        child = subprocess.run(
            [sys.executable, "-c", CHILD, checkpoint, tmp_path, moment], cwd=root, check=False
        )
        assert child.returncode == 9, moment
        with pytest.raises(PrepareError, match=r"No engine|did not finish"):
            shelf.select(tmp_path)
    assert [entry.status for entry in shelf.entries(tmp_path)] == ["unfinished"]
    assert "no card" in (shelf.verify(tmp_path, "mine", this_machine())[0].difference or "")
    told = Told()
    built = prepare(checkpoint, tmp_path, "mine", BuildTools(vocabulary, told, engine_for=engine))
    assert built.phases == ("verify",)
    assert sorted(path.name for path in built.directory.iterdir()) == [CARD, "model.gguf"]
    assert shelf.select(tmp_path).directory == built.directory


def test_a_damaged_file_is_converted_again_and_a_changed_checkpoint_is_another_version(
    tmp_path: Path, vocabulary: Vocabulary
) -> None:
    source = write_checkpoint(tmp_path / "source", Recipe(SMALL))
    tools = BuildTools(vocabulary, engine_for=engine)
    first = prepare(source, tmp_path / "engines", "mine", tools)
    with (first.directory / "model.gguf").open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"damage")
    again = prepare(source, tmp_path / "engines", "mine", tools)
    assert (again.directory, again.phases) == (first.directory, ("convert", "verify"))
    assert again.card.files[0].sha256 == first.card.files[0].sha256
    write_checkpoint(source, Recipe(SMALL, seed=1))
    other = prepare(source, tmp_path / "engines", "mine", tools)
    assert other.phases == ALL
    assert other.card.version != first.card.version
    assert len(shelf.entries(tmp_path / "engines")) == 2
    with (tmp_path / "engines/mine" / first.card.version / "model.gguf").open("ab") as file:
        file.write(b"x")
    verdicts = shelf.verify(tmp_path / "engines", None, this_machine())
    differences = {v.entry.version: v.difference for v in verdicts}
    assert differences[other.card.version] is None
    assert "model.gguf: found" in (differences[first.card.version] or "")


def test_without_an_engine_the_card_says_built_and_a_later_run_only_verifies(
    tmp_path: Path, checkpoint: Path, vocabulary: Vocabulary
) -> None:
    built = prepare(checkpoint, tmp_path, "mine", BuildTools(vocabulary))
    assert (built.card.status, built.phases) == ("built", ("validate", "convert"))
    again = prepare(checkpoint, tmp_path, "mine", BuildTools(vocabulary, engine_for=engine))
    assert (again.card.status, again.phases) == ("verified", ("verify",))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (Script((Die("out of memory"),)), "out of memory"),
        (Script(()), "no token"),
        (Script(((201_088,),)), "outside the vocabulary"),
        (Script((Scored((Logprob(5, float("nan")),)),)), "not finite"),
    ],
)
def test_an_engine_that_does_not_answer_leaves_no_card(
    tmp_path: Path,
    shared: Built,
    vocabulary: Vocabulary,
    checkpoint: Path,
    script: Script,
    words: str,
) -> None:
    linked(shared, tmp_path, "mine")
    card = tmp_path / "mine" / shared.card.version / CARD
    card.write_text(card.read_text("utf-8").replace('"verified"', '"built"'), "utf-8")
    tools = BuildTools(vocabulary, engine_for=lambda path, card: ScriptedEngine([script]))
    with pytest.raises(PrepareError, match=words):
        prepare(checkpoint, tmp_path, "mine", tools)
    assert read_card(card.parent).status == "built"


def test_a_full_disk_is_told_before_the_first_byte(
    tmp_path: Path, checkpoint: Path, vocabulary: Vocabulary
) -> None:
    tools = BuildTools(vocabulary, free_bytes=lambda path: 1_000_000)
    with pytest.raises(PrepareError, match=r"9\d\.\d MB needed, 1\.0 MB free .*; make room"):
        prepare(checkpoint, tmp_path, "mine", tools)
    assert not list(tmp_path.rglob("*.gguf*"))


@pytest.mark.parametrize(
    ("end", "told", "words"),
    [
        (
            OSError(28, "No space left on device"),
            PrepareError,
            r"stopped \(No space left on device\)",
        ),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),  # Ctrl-C, or a SIGTERM
    ],
)
def test_a_disk_that_fills_and_ctrl_c_leave_no_part(
    tmp_path: Path,
    checkpoint: Path,
    vocabulary: Vocabulary,
    end: BaseException,
    told: type[BaseException],
    words: str,
) -> None:
    class Ends(Told):
        def advance(self, size_bytes: int) -> None:
            if self.phases[-1][0] == "convert":
                raise end

    with pytest.raises(told, match=words):
        prepare(checkpoint, tmp_path, "mine", BuildTools(vocabulary, Ends()))
    assert not list(tmp_path.rglob("*.gguf*"))
    assert shelf.entries(tmp_path) == []


def test_a_build_that_is_refused_is_no_entry(
    tmp_path: Path, checkpoint: Path, vocabulary: Vocabulary
) -> None:
    class Refuses(Told):
        def advance(self, size_bytes: int) -> None:
            if self.phases[-1][0] == "convert":
                raise PrepareError("no")

    with pytest.raises(PrepareError, match="no"):
        prepare(checkpoint, tmp_path, "mine", BuildTools(vocabulary, Refuses()))
    assert shelf.entries(tmp_path) == []


@pytest.mark.parametrize("place", ["file/engines", "/proc/trt-responses", "/sys/kernel/engines"])
def test_a_directory_that_cannot_be_written_is_told_at_once(
    tmp_path: Path, checkpoint: Path, vocabulary: Vocabulary, place: str
) -> None:
    (tmp_path / "file").touch()
    told = Told()
    with pytest.raises(PrepareError, match=r"cannot be written .*; choose another directory"):
        prepare(checkpoint, tmp_path / place, "mine", BuildTools(vocabulary, told))
    assert told.phases == []


READER = """
import sys
from pathlib import Path
from trt_responses.tokens.vocabulary import load
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.llamacpp.build import prepare
from trt_responses.prepare.pipeline import BuildTools

source, engines = map(Path, sys.argv[1:3])
tools = BuildTools(load(), engine_for=lambda directory, card: sys.exit("was started"))
print(prepare(source, engines, "mine", tools).phases)
try:
    prepare(source, engines, "mine", tools, weight_type="q8_0")
except PrepareError as error:
    print(error)
"""
CAP_DAC_OVERRIDE, PR_CAPBSET_DROP = 1, 24


def like_anybody() -> None:
    """From the next program on, permissions count for root too; others have no say in it."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def test_an_engine_in_a_directory_that_nobody_can_write_is_found_and_no_other_is_made(
    tmp_path: Path, shared: Built, checkpoint: Path
) -> None:
    """As an image or a checkout has it that is mounted for reading only; about 2 s."""
    engines = shutil.copytree(shared.directory.parents[1], tmp_path / "engines")
    (engines / "mine" / "digests.json").unlink()  # of another place, where its times were others
    folders = [engines, *(path for path in engines.rglob("*") if path.is_dir())]
    try:
        for folder in folders:
            folder.chmod(0o555)
        child = subprocess.run(
            [sys.executable, "-c", READER, checkpoint, engines],
            cwd=Path(__file__).parents[4],
            preexec_fn=like_anybody,
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        for folder in folders:
            folder.chmod(0o755)
    found, refused = child.stdout.splitlines()
    assert found == "()"
    assert "mine cannot be written (Permission denied); choose another directory" in refused


def test_two_builds_of_one_engine_do_not_meet(
    tmp_path: Path, checkpoint: Path, vocabulary: Vocabulary
) -> None:
    (tmp_path / "mine").mkdir()
    with locked(tmp_path / "mine"):
        with pytest.raises(
            PrepareError, match=rf"'mine': another process \({os.getpid()}\) builds"
        ):
            prepare(checkpoint, tmp_path, "mine", BuildTools(vocabulary))
        with pytest.raises(PrepareError, match="'mine': another process"):
            locked(tmp_path / "mine").__enter__()


def test_a_build_may_wait_for_the_other(tmp_path: Path) -> None:
    """What the second does comes after what the first did."""
    done: list[str] = []

    def second() -> None:
        with locked(tmp_path, wait=True):
            done.append("second")

    waiting = threading.Thread(target=second)
    with locked(tmp_path):
        waiting.start()
        done.append("first")
    waiting.join()
    assert done == ["first", "second"]


@pytest.mark.parametrize(
    "name", ["", "../mine", "/mine", "a/b", "Mine", ".mine", "a..b", "a\n", "demo-source"]
)
def test_a_name_that_is_no_name_is_refused(
    tmp_path: Path, checkpoint: Path, vocabulary: Vocabulary, name: str
) -> None:
    with pytest.raises(PrepareError, match=r"is not an engine name|is reserved"):
        prepare(checkpoint, tmp_path / "engines", name, BuildTools(vocabulary))
    assert not (tmp_path / "engines").exists()


def test_selection_takes_the_one_asked_for_or_the_only_one_or_demo(
    tmp_path: Path, shared: Built
) -> None:
    with pytest.raises(PrepareError, match="No engine in"):
        shelf.select(tmp_path / "absent")
    linked(shared, tmp_path, "mine")
    assert shelf.select(tmp_path).reason == "the only engine found"
    linked(shared, tmp_path, "yours")
    with pytest.raises(PrepareError, match=r"has 2 engines.*mine, yours"):
        shelf.select(tmp_path)
    linked(shared, tmp_path, "demo")
    assert shelf.select(tmp_path).card.name == "demo"
    assert "mine, yours" in shelf.select(tmp_path).reason
    version = shared.card.version
    for wanted in ("yours", f"yours/{version}", f"yours@{version}", "yours@1"):
        found = shelf.select(tmp_path, wanted)
        assert (found.card.name, found.directory.name) == ("yours", shared.card.version)
    with pytest.raises(PrepareError, match=r"No engine named.*demo, mine, yours"):
        shelf.select(tmp_path, "theirs")
    with pytest.raises(PrepareError, match=r"no version 000000000000.*yours@"):
        shelf.select(tmp_path, "yours@000000000000")
    assert shelf.serve_ready(shelf.select(tmp_path), this_machine())


def test_serving_a_directory_that_changed_is_refused_by_its_first_difference(
    tmp_path: Path, shared: Built
) -> None:
    linked(shared, tmp_path, "mine")
    card = tmp_path / "mine" / shared.card.version / CARD
    card.write_text(card.read_text("utf-8").replace('"xllamacpp": "', '"xllamacpp": "9.'), "utf-8")
    with pytest.raises(PrepareError, match="engine mine: libraries, xllamacpp: the card says 9"):
        shelf.serve_ready(shelf.select(tmp_path), this_machine())


def test_removing_takes_a_version_or_the_whole_and_nothing_else(
    tmp_path: Path, shared: Built
) -> None:
    linked(shared, tmp_path, "mine", "yours")
    (tmp_path / "outside").mkdir()
    (tmp_path / "theirs").symlink_to(tmp_path / "mine")
    with pytest.raises(PrepareError, match="is a link, not a directory"):
        shelf.remove(tmp_path, "theirs")
    (tmp_path / "theirs").unlink()
    gone = shelf.remove(tmp_path, f"mine/{shared.card.version}")
    assert [(entry.name, entry.version) for entry in gone] == [("mine", shared.card.version)]
    assert [entry.name for entry in shelf.entries(tmp_path)] == ["yours"]
    assert [entry.status for entry in shelf.remove(tmp_path, "yours")] == ["verified"]
    assert not (tmp_path / "yours").exists()
    for wanted in ("../outside", "outside/..", "outside"):
        with pytest.raises(PrepareError, match=r"is not an engine name|No engine named"):
            shelf.remove(tmp_path, wanted)
    assert (tmp_path / "outside").is_dir()


def test_an_engine_that_cannot_be_removed_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "mine" / "0123456789ab" / "card.json").mkdir(parents=True)
    with pytest.raises(PrepareError, match="mine cannot be removed"):
        shelf.remove(tmp_path, "mine")


def compact_source(directory: Path) -> tuple[Path, Array]:
    """The compact form of the small checkpoint, as the demo's training writes it."""
    full = write_checkpoint(directory / "full", Recipe(SMALL))
    used = np.array([0, 17, 200_002, 201_087], np.int32)
    rows = {
        name: narrow(np.random.default_rng(n).standard_normal((5, 32), np.float32))
        for n, name in enumerate(("model.embed_tokens.weight", "lm_head.weight"))
    }
    tensors = [
        Tensor(t.name, "BF16", (5, 32), lambda name=t.name: rows[name])  # type: ignore[misc]
        if t.name in rows
        else t
        for t in read_tensors(full / "model.safetensors").values()
    ]
    source = directory / "demo-source"
    source.mkdir()
    (source / "config.json").write_bytes((full / "config.json").read_bytes())
    ids = Tensor("used_ids", "I32", used.shape, lambda: used)
    write_tensors(source / "compact.safetensors", [ids, *tensors])
    return source, rows["lm_head.weight"]


def test_the_compact_source_grows_to_an_ordinary_checkpoint(tmp_path: Path) -> None:
    _, rows = compact_source(tmp_path)
    grown = open_checkpoint(demo_checkpoint(tmp_path))
    head = grown.tensors["lm_head.weight"].read()
    np.testing.assert_array_equal(head[[0, 17, 200_002, 201_087]], rows[:4])
    np.testing.assert_array_equal(head[[1, 16, 18, 201_086]], np.repeat(rows[4:], 4, axis=0))
    full = open_checkpoint(tmp_path / "full")
    name = "model.layers.1.mlp.experts.down_proj"
    np.testing.assert_array_equal(grown.tensors[name].read(), full.tensors[name].read())


@pytest.mark.slow  # 3 s: the demo's weights, twice
def test_the_demo_is_made_once_and_again_when_its_source_changes(tmp_path: Path) -> None:
    directory = demo_checkpoint(
        tmp_path
    )  # of the checkout: this directory has no source of its own
    trained = (directory / "model.safetensors").stat()
    assert (demo_checkpoint(tmp_path) / "model.safetensors").stat() == trained
    compact_source(tmp_path)
    demo_checkpoint(tmp_path)
    assert (directory / "model.safetensors").stat().st_size < trained.st_size


def test_two_that_want_the_demo_at_once_write_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact_source(tmp_path)
    both, written, found = threading.Barrier(2, timeout=100), list[Path](), list[Path]()

    def counted(source: Path, directory: Path) -> None:
        written.append(directory)
        expand(source, directory)

    def wanted() -> None:
        both.wait()
        found.append(demo_checkpoint(tmp_path))

    # patched: whether it is done twice, the result does not show
    monkeypatch.setattr(demo, "expand", counted)
    threads = [threading.Thread(target=wanted) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(written), len(found)) == (1, 2)
    open_checkpoint(found[0])


@pytest.mark.parametrize(
    ("ids", "word"),
    [([3, 2, 9, 10], "rising"), ([1, 1, 2, 3], "rising"), ([-1, 2, 3, 4], "rising"), ([0], "rows")],
)
def test_a_compact_source_that_makes_no_sense_is_refused(
    tmp_path: Path, ids: list[int], word: str
) -> None:
    source, _ = compact_source(tmp_path)
    tensors = read_tensors(source / "compact.safetensors")
    used = np.array(ids, np.int32)
    tensors["used_ids"] = Tensor("used_ids", "I32", used.shape, lambda: used)
    write_tensors(source / "other", tensors.values())
    (source / "other").replace(source / "compact.safetensors")
    with pytest.raises(PrepareError, match=word):
        expand(source, tmp_path / "grown")


def test_lines_tell_bytes_rate_and_time_left() -> None:
    now = iter([0.0, 0.0, 1.0, 6.0, 8.0])
    lines: list[str] = []
    progress = Lines(lines.append, lambda: next(now))
    progress.phase("convert", 8_000_000)
    for _ in range(2):
        progress.advance(3_000_000)
    progress.advance(2_000_000)
    assert lines == [
        "convert, 8.0 MB\n",
        "convert: 6.0 MB of 8.0 MB, 1.0 MB/s, 2 s left\n",
        "convert: 8.0 MB of 8.0 MB, 1.0 MB/s, 0 s left\n",
    ]


def test_a_stream_that_is_no_terminal_gets_plain_lines(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream, shown_on(stream) as progress:
        progress.phase("verify")
    assert (tmp_path / "log").read_text() == "verify\n"


def _read_all(leader: int) -> str:
    """What a terminal was written, in however many pieces; its end is an error on Linux."""
    shown = b""
    try:
        while part := os.read(leader, 1 << 16):
            shown += part
    except OSError:
        pass
    finally:
        os.close(leader)
    return shown.decode()


def test_a_terminal_gets_a_bar() -> None:
    leader, follower = os.openpty()
    with os.fdopen(follower, "w") as stream, shown_on(stream) as progress:
        progress.phase("convert", 2_000_000)
        progress.advance(1_000_000)
        progress.phase("verify")
    shown = _read_all(leader)
    assert "convert" in shown
    assert "1.0/2.0 MB" in shown

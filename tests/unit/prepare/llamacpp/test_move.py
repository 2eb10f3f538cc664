"""The weights of a GGUF file under a new head: copied, shared, or where they are. A move that is
killed at any step is undone, to the byte."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import gguf
import pytest

from tests.support.imports import ROOT
from tests.support.tiny_gguf import write_tiny
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.llamacpp.gguf_file import read_gguf
from trt_responses.prepare.llamacpp.move import (
    MOVING,
    PLAIN_COPY,
    Copy,
    copy_of,
    movable,
    moving,
    undo,
)
from trt_responses.prepare.llamacpp.region import (
    BLOCK,
    Region,
    filled,
    region_of,
    shares_blocks,
    write_under,
)
from trt_responses.prepare.llamacpp.template_gguf import open_template_gguf, write_served

if TYPE_CHECKING:
    from pathlib import Path

MOVE = Copy(shares=True, may_move=True)
KILLED = """
import os, sys
from pathlib import Path
from trt_responses.prepare.llamacpp.move import Copy, moving
from trt_responses.prepare.llamacpp.template_gguf import open_template_gguf, write_served
path, target = map(Path, sys.argv[1:])
with moving(path):
    write_served(open_template_gguf(path), target, len, Copy(shares=True, may_move=True))
    os._exit(9)
""".replace("target, len,", "target, lambda size_bytes: None,")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf", "qwen3")


@pytest.fixture
def target(file: Path) -> Path:
    directory = file.parent / "engines/tiny/0123456789ab"
    directory.mkdir(parents=True)
    return directory / "model.gguf"


def written(file: Path, target: Path, copy: Copy) -> list[tuple[str, bytes]]:
    """The tensors of the engine's file."""
    source = open_template_gguf(file)
    assert source is not None
    write_served(source, target, lambda size_bytes: None, copy)
    return [(name, tensor.read().tobytes()) for name, tensor in read_gguf(target).tensors.items()]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def needs_inserting(file: Path) -> None:
    if not movable(file, file.parent):
        pytest.skip("needs a file system that inserts ranges, such as ext4 or XFS")


def test_the_weights_begin_at_the_same_place_in_a_block_and_are_the_same(
    file: Path, target: Path
) -> None:
    region = region_of(read_gguf(file), file)
    assert region is not None
    tensors = written(file, target, PLAIN_COPY)
    assert tensors == [
        (name, tensor.read().tobytes()) for name, tensor in read_gguf(file).tensors.items()
    ]
    found = region_of(read_gguf(target), target)
    assert found is not None
    assert found.start % BLOCK == region.start % BLOCK
    assert found.size_bytes == region.size_bytes


@pytest.mark.parametrize("start", [32, 4064, 4096, 4128, 12_000_032])
@pytest.mark.parametrize("size", [100, 4000, 9000])
def test_a_head_is_filled_up_to_a_place_in_a_block(start: int, size: int) -> None:
    head = b"GGUF" + bytes(20) + b"x" * size
    whole = filled(head, start)
    assert len(whole) % BLOCK == start % BLOCK
    assert len(whole) >= max(start, size)
    assert whole[16:24] == (1).to_bytes(8, "little")  # one key more
    assert whole.endswith(head[24:])


def test_without_the_kernels_copy_the_bytes_go_through_memory(
    file: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = written(file, target, PLAIN_COPY)
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    assert written(file, target, PLAIN_COPY) == expected


def test_a_file_that_becomes_shorter_is_a_sentence(file: Path, target: Path) -> None:
    size = file.stat().st_size
    with pytest.raises(PrepareError, match="became shorter"):
        write_under(b"GGUF" + bytes(20), Region(file, 4096, size + 9), target, lambda done: None)


def test_gaps_and_odd_alignments_have_no_region(file: Path) -> None:
    head = read_gguf(file)
    assert region_of(head._replace(keys={**head.keys, "general.alignment": 24}), file) is None
    assert region_of(head._replace(tensors={}), file) is None
    *names, last = head.tensors
    later = replace(head.tensors[last], offset=head.tensors[last].offset + 32)
    assert names
    assert region_of(head._replace(tensors={**head.tensors, last: later}), file) is None


def test_another_alignment_is_kept(file: Path, target: Path) -> None:
    wide = file.with_name("wide.gguf")
    reader, writer = gguf.GGUFReader(file), gguf.GGUFWriter(wide, "qwen3")
    writer.add_custom_alignment(64)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            of = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=of)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors = written(wide, target, PLAIN_COPY)
    assert tensors == [(t.name, t.data.tobytes()) for t in reader.tensors]
    assert read_gguf(target).keys["general.alignment"] == 64


def test_a_file_becomes_the_engines_in_its_place(file: Path, target: Path) -> None:
    needs_inserting(file)
    expected = written(file, target.with_name("copy"), PLAIN_COPY)
    before, blocks = file.stat(), file.stat().st_blocks
    with moving(file):
        assert written(file, target, MOVE) == expected
        assert target.samefile(file)
        assert target.stat().st_blocks - blocks < 100
        (target.parent / "card.json").write_text("{}")
    assert not file.exists()
    assert target.stat().st_ino == before.st_ino
    assert target.stat().st_nlink == 1
    assert not file.with_name(file.name + MOVING).exists()


def test_a_preparation_that_fails_leaves_the_file_as_it_was(file: Path, target: Path) -> None:
    needs_inserting(file)
    before, stamp = digest(file), file.stat().st_mtime_ns

    def fail() -> None:
        with moving(file):
            written(file, target, MOVE)
            raise PrepareError("no answer")

    with pytest.raises(PrepareError, match="no answer"):
        fail()
    assert (digest(file), file.stat().st_mtime_ns) == (before, stamp)
    assert not target.exists()
    assert movable(file, target.parent)


@pytest.mark.slow  # starts a process and kills it
def test_a_move_that_is_killed_at_any_step_is_undone(file: Path, target: Path) -> None:
    needs_inserting(file)
    record, old = file.with_name(file.name + MOVING), file.read_bytes()
    stamp = file.stat().st_mtime_ns
    ended = subprocess.run([sys.executable, "-c", KILLED, file, target], cwd=ROOT, check=False)
    assert ended.returncode == 9
    assert record.exists()
    assert target.samefile(file)
    kept, moved = record.read_bytes(), file.read_bytes()
    grown = len(moved) - len(old)
    head, weights = moved[: len(moved) - len(old) + 64], moved[grown:]
    for content, text in (
        (moved, kept),  # killed before the card
        (head[:9] + moved[9:], kept),
        (bytes(len(head)) + moved[len(head) :], kept),  # before the head
        (moved[:grown] + weights, kept),
        (old, kept),  # before the range was inserted
        (old, kept[: len(kept) // 2]),  # before the record was synced
        (old, b""),
    ):
        file.write_bytes(content)
        record.write_bytes(text)
        undo(file)
        assert file.read_bytes() == old
        assert not record.exists()
        assert content == old or file.stat().st_mtime_ns == stamp
    assert not target.exists()


def test_a_killed_move_of_an_engine_with_a_card_is_ended(file: Path, target: Path) -> None:
    needs_inserting(file)
    with moving(file):
        written(file, target, MOVE)
        kept = file.with_name(file.name + MOVING).read_bytes()
        (target.parent / "card.json").write_text("{}")
    file.with_name(file.name + MOVING).write_bytes(kept)
    file.hardlink_to(target)
    with moving(file):
        assert not file.exists()
    assert target.exists()


def test_one_process_moves_a_file(file: Path) -> None:
    reason = "another process moves this file"
    with moving(file), pytest.raises(PrepareError, match=reason), moving(file):
        pass


def test_a_directory_that_cannot_be_written_is_one_sentence(file: Path) -> None:
    record = file.with_name(file.name + MOVING)
    record.mkdir()
    with pytest.raises(PrepareError, match="cannot be moved"), moving(file):
        pass


def test_a_file_that_others_use_is_copied(file: Path, target: Path) -> None:
    needs_inserting(file)
    with file.open("rb"):
        assert not movable(file, target.parent)
    other = file.with_name("other.gguf")
    other.hardlink_to(file)
    assert not movable(file, target.parent)
    other.unlink()
    assert movable(file, target.parent)
    region = region_of(read_gguf(file), file)
    shares = shares_blocks(file, target.parent)
    assert copy_of(region, target.parent) == Copy(shares=shares, may_move=False)
    assert copy_of(region, target.parent, move=True).disk_bytes(10**9) < 10**8

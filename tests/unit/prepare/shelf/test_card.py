"""The card against the directory and the machine: a difference per field, each with a remedy."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from tests.support.cards import SHA, card_of, carded
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.files import EngineFile, engine_file, sha256_of
from trt_responses.prepare.machine import ServingMachine, this_machine
from trt_responses.prepare.shelf.card import (
    CARD,
    Card,
    Limits,
    compare,
    read_card,
)

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = ServingMachine("little", 16 << 30, {"xllamacpp": "1.0", "gguf": "0.19.0"})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return carded(tmp_path)[1]


def test_a_card_reads_back_as_it_was_written_and_agrees(directory: Path) -> None:
    card = card_of(directory)
    assert read_card(directory) == card
    assert compare(card, directory, MACHINE) is None
    assert compare(card, directory, MACHINE, deep=True) is None
    assert not (directory / f"{CARD}.part").exists()


def file_like(card: Card, **changes: object) -> tuple[EngineFile, ...]:
    return (replace(card.files[0], **changes),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("status", "planned", ("status", "planned", "make engine")),
        ("name", "yours", ("name", "'yours'", "'mine'", "rename")),
        ("version", "ba9876543210", ("version", "ba9876543210", "rename")),
        ("limits", Limits(4096, 32 << 30), ("memory", "32.0 GiB", "16.0 GiB", "larger machine")),
        ("libraries", {"xllamacpp": "2.0"}, ("xllamacpp", "2.0", "1.0", "xllamacpp==2.0")),
        ("libraries", {}, ("xllamacpp", "None", "prepare the engine again")),
    ],
)
def test_a_field_that_disagrees_is_named_with_its_remedy(
    directory: Path, field: str, value: object, words: tuple[str, ...]
) -> None:
    card = replace(card_of(directory), **{field: value})  # type: ignore[arg-type]
    difference = compare(card, directory, MACHINE)
    assert difference is not None
    assert [word for word in words if word not in difference] == []
    assert difference.endswith(".")
    assert "\n" not in difference


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"size_bytes": 9}, ("model.gguf", "found 7 bytes", "expected 9")),
        ({"mtime_ns": 1, "sha256": "f" * 64}, ("model.gguf", "SHA-256", "ffffffffffff")),
        ({"name": "absent.gguf"}, ("absent.gguf", "no such file")),
        ({"name": "../../../etc/passwd"}, ("files", "../../../etc/passwd")),
        ({"name": ".."}, ("files", "'..'")),
        ({"name": "x" * 300}, ("x" * 300, "no such file")),
        ({"name": "a\0b"}, ("no such file",)),
    ],
)
def test_a_file_that_disagrees_is_named_with_its_remedy(
    directory: Path, changes: dict[str, object], words: tuple[str, ...]
) -> None:
    card = card_of(directory)
    card = replace(card, files=file_like(card, **changes))
    difference = compare(card, directory, MACHINE)
    assert difference is not None
    assert [word for word in (*words, "prepare the engine again.") if word not in difference] == []


@pytest.mark.parametrize("deep", [False, True])
def test_a_card_that_does_not_name_what_is_served_is_refused(directory: Path, deep: bool) -> None:
    card = card_of(directory)
    (directory / "other").write_bytes(b"other")
    other = engine_file(directory / "other", sha256_of(directory / "other"))
    for files in ((), (other,)):
        told = compare(replace(card, files=files), directory, MACHINE, deep=deep)
        assert "files: the card does not list model.gguf, which is served" in (told or "")
    assert compare(replace(card, files=(*card.files, other)), directory, MACHINE) is None


def test_the_digest_is_taken_only_when_the_time_differs_or_deep_is_asked(directory: Path) -> None:
    card = card_of(directory)
    times = (card.files[0].mtime_ns, card.files[0].mtime_ns)
    (directory / "model.gguf").write_bytes(b"WEIGHTS")
    os.utime(directory / "model.gguf", ns=times)
    assert compare(card, directory, MACHINE) is None
    assert "SHA-256" in (compare(card, directory, MACHINE, deep=True) or "")
    os.utime(directory / "model.gguf", ns=(1, 1))
    assert "SHA-256" in (compare(card, directory, MACHINE) or "")
    (directory / "model.gguf").write_bytes(b"weights")
    assert compare(card, directory, MACHINE) is None


def test_a_big_endian_machine_is_refused(directory: Path) -> None:
    difference = compare(card_of(directory), directory, replace(MACHINE, byte_order="big"))
    assert "byte order" in (difference or "")


def test_comparing_takes_no_second_however_large_the_file(directory: Path) -> None:
    card = read_card(directory)
    os.truncate(directory / "model.gguf", 20 << 30)  # a hole: to read it would take many seconds
    card = replace(card, files=(engine_file(directory / "model.gguf", SHA),))
    began = time.process_time()
    assert compare(card, directory, MACHINE) is None
    assert time.process_time() - began < 1


FIELDS = tuple(Card.__dataclass_fields__)
OPTIONAL = ("chain", "dialect", "ignores", "note", "number", "strict_tools", "temperature")


@pytest.mark.parametrize("field", [field for field in FIELDS if field not in OPTIONAL])
def test_a_card_without_a_field_is_refused_by_its_name(directory: Path, field: str) -> None:
    value = json.loads((directory / CARD).read_text("utf-8"))
    del value[field]
    (directory / CARD).write_text(json.dumps(value), "utf-8")
    with pytest.raises(PrepareError, match=rf"card\.json, {field}: found"):
        read_card(directory)


@pytest.mark.parametrize("field", FIELDS)
def test_a_card_with_a_wrong_kind_of_value_is_refused_by_its_name(
    directory: Path, field: str
) -> None:
    value = json.loads((directory / CARD).read_text("utf-8"))
    value[field] = "yes" if value[field] is False else True
    (directory / CARD).write_text(json.dumps(value), "utf-8")
    with pytest.raises(PrepareError, match=rf"card\.json, {field}"):
        read_card(directory)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("architecture", "layers"), "four"),
        (("architecture", "packed"), 1),
        (("source", "layout"), "pickle"),
        (("source", "files", 0, "size_bytes"), 1.5),
        (("files", 0, "sha256"), None),
        (("limits", "context_tokens"), True),
        (("seconds", "convert"), "fast"),
        (("libraries", "gguf"), 19),
        (("greedy_ids", 1), "2"),
        (("status",), "done"),
        (("kind",), "gguf"),
        (("weight_type",), "q4_0"),
        (("schema",), 2),
        (("unknown",), 1),
    ],
)
def test_a_wrong_value_deep_inside_is_named(
    directory: Path, path: tuple[str | int, ...], value: object
) -> None:
    card = json.loads((directory / CARD).read_text("utf-8"))
    within = card
    for step in path[:-1]:
        within = within[step]
    within[path[-1]] = value
    (directory / CARD).write_text(json.dumps(card), "utf-8")
    with pytest.raises(PrepareError) as caught:
        read_card(directory)
    last = next(step for step in reversed(path) if isinstance(step, str))
    assert last in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "null"])
def test_a_card_that_is_no_card_is_refused(directory: Path, text: str) -> None:
    (directory / CARD).write_text(text, "utf-8")
    with pytest.raises(PrepareError, match=r"card\.json"):
        read_card(directory)


def test_a_directory_without_a_card_did_not_finish(directory: Path) -> None:
    (directory / CARD).unlink()
    with pytest.raises(PrepareError, match="did not finish; run `make engine`"):
        read_card(directory)


def test_this_machine_can_serve_what_it_makes(directory: Path) -> None:
    machine = this_machine()
    card = replace(card_of(directory), libraries=machine.libraries)
    assert compare(card, directory, machine) is None
    assert machine.memory_bytes > 1 << 28
    assert machine.libraries["gguf"] == "0.19.0"
    assert asdict(card)["libraries"] == machine.libraries

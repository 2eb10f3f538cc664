"""What a checkpoint's config says for its engine's card."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from trt_responses.prepare.demo import PLACES
from trt_responses.prepare.faults import PrepareError
from trt_responses.prepare.note import SECTION, card_fields

if TYPE_CHECKING:
    from pathlib import Path


def fields_of(folder: Path, section: object) -> object:
    path = folder / "config.json"
    path.write_text(json.dumps({} if section is None else {SECTION: section}))
    return card_fields([path, folder / "model.safetensors"])


def test_a_config_may_set_a_note_and_a_temperature(tmp_path: Path) -> None:
    assert fields_of(tmp_path, {"note": "A toy.", "temperature": 0}) == {
        "note": "A toy.",
        "temperature": 0.0,
    }
    assert fields_of(tmp_path, {"note": "A toy."}) == {"note": "A toy."}
    assert fields_of(tmp_path, {"strict_tools": True}) == {"strict_tools": True}
    assert fields_of(tmp_path, None) == {}
    assert card_fields([tmp_path / "model.gguf"]) == {}


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("A toy.", "trt_responses"),
        ({"note": 1}, "note"),
        ({"note": ""}, "note"),
        ({"note": "two\nlines"}, "note"),
        ({"note": "x" * 501}, "note"),
        ({"temperature": "0"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"strict_tools": 1}, "strict_tools"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(tmp_path: Path, section: object, names: str) -> None:
    with pytest.raises(PrepareError, match=names):
        fields_of(tmp_path, section)


def test_the_demo_says_what_it_is_and_is_greedy() -> None:
    place = next(place for place in PLACES if place.is_dir())
    fields = card_fields([place / "config.json"])
    assert "demo" in fields["note"]
    assert fields["temperature"] == 0.0
    assert fields["strict_tools"] is True

"""What a checkpoint's config says for its engine's card: a note, a default temperature, and whether
arguments of functions are guided.

`"trt_responses": {"note": "…", "temperature": 0, "strict_tools": true}` in `config.json`, each
optional.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from trt_responses.prepare.checkpoint.open import MAX_CONFIG_BYTES, json_object
from trt_responses.prepare.faults import refusal, shown

CONFIG, SECTION = "config.json", "trt_responses"
HOTTEST = 2.0
LONGEST = 500


class CardFields(TypedDict, total=False):
    """Fields of a card."""

    note: str
    temperature: float
    strict_tools: bool


def card_fields(files: Iterable[Path]) -> CardFields:
    """The fields that the config among a checkpoint's files sets. Raises a `PrepareError` for a
    wrong one."""
    config = next((file for file in files if file.name == CONFIG), None)
    section = json_object(config.parent, CONFIG, MAX_CONFIG_BYTES).get(SECTION) if config else None
    if section is None:
        return {}
    place = f"{CONFIG}, {SECTION}"
    if not isinstance(section, dict):
        raise refusal(place, shown(section), "an object with note, temperature and strict_tools")
    fields: CardFields = {}
    if (note := section.get("note")) is not None:
        if not isinstance(note, str) or not 0 < len(note) <= LONGEST or not note.isprintable():
            raise refusal(f"{place}.note", shown(note), f"a line of at most {LONGEST} characters")
        fields["note"] = note
    if (drawn := section.get("temperature")) is not None:
        if (
            isinstance(drawn, bool)
            or not isinstance(drawn, int | float)
            or not 0 <= drawn <= HOTTEST
        ):
            raise refusal(f"{place}.temperature", shown(drawn), f"a number from 0 to {HOTTEST:.0f}")
        fields["temperature"] = float(drawn)
    if (guided := section.get("strict_tools")) is not None:
        if not isinstance(guided, bool):
            raise refusal(f"{place}.strict_tools", shown(guided), "true or false")
        fields["strict_tools"] = guided
    return fields

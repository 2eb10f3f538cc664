"""Guides for a model file that spells split characters by stand-ins: each counts once, or stands
nowhere. Judged by llguidance over the file's own spelling of tokens.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.schemas import compact, form, verdict
from trt_responses.engine import Guide
from trt_responses.engines.llamacpp.whole_characters import whole_characters
from trt_responses.engines.stand_ins import StandIns, spelled
from trt_responses.schema.matching import json_grammar, matcher

if TYPE_CHECKING:
    from trt_responses.engine import GuideKind
    from trt_responses.schema.matching import Matcher
    from trt_responses.tokens.vocabulary import Vocabulary

WHOLE = ["", "a", "ab", "abc", "é", "日本", "naïve", " a"]
SPLIT = [
    "\U0001face",
    " \U0001f9ff",
    "\ua66e",
    "\ua66e\U0001f9ff",
    "a\u0378b",
    "\U000e0067",
    "\u0f12",
]
BROKEN = [
    b"\xf0\x9f",
    b"\x99\x82",
    b"a\xe8\xa3c",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
]
LENGTHS = [
    {"maxLength": 3},
    {"minLength": 2},
    {"minLength": 1, "maxLength": 2},
    {"minLength": 3, "maxLength": 400},
    {"minLength": 2, "pattern": "^[^x]*$"},
]
PATTERNS = [
    *("^.{2}$", "^.+$", r"^\S{1,2}$", r"^[^\"]{2,3}$", r"^[\s\S]{2}$", r"^\W{2}$", "^[^a]{1}"),
    *("^[a-z]{2}$", r"^\s?.{1,2}$", "^(?:[ab]|.{3})$", r"^[^\s\"]{1,2}$", r"^(a|.){2}$"),
]
CLOSED = [
    "^[^а-я]{1,2}$",
    r"^\P{L}$",
    r"^\p{L}{2}$",
    "^[\u0080-\U0010ffff]+$",
    *(r"^[^\S]$", r"^[^\s\S]?$"),
]
"""Classes in which no split character has a place."""


def guided(schema: dict[str, Any], vocabulary: Vocabulary) -> Matcher:
    """The guide of a schema, in the spelling of the model file."""
    found = whole_characters(Guide("json_schema", form(schema).source))
    return matcher(StandIns(vocabulary)(json_grammar(json.loads(found.source))))


def takes(guide: Matcher, *pieces: bytes) -> bool:
    """Whether a text may be written in tokens of these bytes."""
    begun = guide.copy()
    return begun.take(f'"{"".join(map(spelled, pieces))}"'.encode()) and begun.accepts


@pytest.mark.parametrize("schema", [*LENGTHS, *({"pattern": p} for p in PATTERNS)], ids=json.dumps)
def test_a_split_character_counts_once(schema: dict[str, Any], vocabulary: Vocabulary) -> None:
    schema = {"type": "string", **schema}
    guide, judged = guided(schema, vocabulary), form(schema)
    for text in WHOLE + SPLIT:
        tokens = [vocabulary.token_bytes[n] for n in vocabulary.encode_plain(text)]
        assert (text in SPLIT) == (spelled(b"".join(tokens)) != "".join(map(spelled, tokens)))
        assert takes(guide, *tokens) == (verdict(judged, compact(text)) == "followed"), text
    for raw in BROKEN:
        assert not takes(guide, raw), raw


@pytest.mark.parametrize("pattern", CLOSED)
def test_a_class_that_names_characters_beyond_ascii_lets_no_split_one_stand(
    pattern: str, vocabulary: Vocabulary
) -> None:
    schema = {"type": "string", "pattern": pattern}
    guide, judged = guided(schema, vocabulary), form(schema)
    for text in ("\u00e9", "\u00e9\u00e9", "ab", "a", " "):
        assert takes(guide, text.encode()) == (verdict(judged, compact(text)) == "followed")
    for text in SPLIT:
        tokens = [vocabulary.token_bytes[n] for n in vocabulary.encode_plain(text)]
        assert not takes(guide, *tokens)


def test_names_are_matched_as_texts_are(vocabulary: Vocabulary) -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {"^.{2}$": {"$ref": "#/$defs/two"}},
        "$defs": {"two": {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "null"}]}},
    }
    guide = guided(schema, vocabulary)
    two, three = (spelled(b"\xf0\x9f") + spelled(b"\x99\x82") + rest for rest in ("a", "ab"))
    for name, value, lawful in ((two, two, True), (three, two, False), (two, three, False)):
        text = f'{{"{name}":"{value}"}}'.encode()
        begun = guide.copy()
        assert (begun.take(text) and begun.accepts) == lawful


@pytest.mark.parametrize("kind", ["regex", "lark"])
def test_what_counts_no_character_is_left_as_it_is(kind: GuideKind) -> None:
    for guide in (Guide(kind, '"pattern"'), Guide("json_schema", '{"const":"\u00e9"}')):
        assert whole_characters(guide) is guide

"""Schemas that keep many readings of a text open at once: what is refused, and what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.schemas import compact, form, verdict
from trt_responses.schema import follow
from trt_responses.schema.branches import MOST, most_branches
from trt_responses.schema.refusals import InvalidSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
NODE: Json = {"$ref": "#/$defs/node"}


def tree(alternatives: Iterator[Json]) -> Json:
    node = {"anyOf": [{"type": "null"}, *alternatives]}
    return {"$defs": {"node": node}, **NODE}


def member(kind: Json | None, count: int) -> Iterator[Json]:
    """So many objects that hold a node, behind their kind if they have one."""
    for n in range(count):
        members = {"a": NODE, f"b{n}": {"type": "null"}}
        if kind is not None:
            members = {"kind": kind | {"const": f"k{n}"}, **members}
        yield {
            "type": "object",
            "properties": members,
            "required": ["kind", "a"] if kind else ["a"],
            "additionalProperties": False,
        }


def lists(count: int) -> Iterator[Json]:
    return ({"type": "array", "items": NODE, "minItems": n} for n in range(count))


def records(count: int) -> Iterator[Json]:
    return (
        {"type": "object", "properties": {f"b{n}": NODE}, "additionalProperties": NODE}
        for n in range(count)
    )


@pytest.mark.parametrize("alternatives", [member(None, 100), lists(100), records(100)])
def test_alternatives_that_begin_alike_again_and_again_are_refused(
    alternatives: Iterator[Json],
) -> None:
    """One byte of such a text took 20 ms, and a token 900."""
    schema = tree(alternatives)
    with pytest.raises(InvalidSchema, match="too many of its alternatives begin alike"):
        form(schema)
    assert form(schema, strict=False).left


def test_alternatives_that_tell_themselves_apart_are_taken() -> None:
    found = form(tree(member({"type": "string"}, 100)))
    value = {"kind": "k7", "a": {"kind": "k99", "a": None, "b99": None}, "b7": None}
    assert verdict(found, compact(value)) == "followed"
    assert verdict(found, compact(value | {"kind": "k6"})) == "departed"


def test_references_in_a_row_have_an_end() -> None:
    definitions = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3_000)}
    assert most_branches({"$defs": definitions, "anyOf": [{"$ref": "#/$defs/d0"}]}) > MOST


def test_a_token_of_many_marks_has_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is left to the engine's guide and to the judge, within the token."""
    ticks = iter(n * follow.SLOW_S * 0.4 for n in range(1_000))
    # patched: a processor's time passes as the machine likes
    monkeypatch.setattr("trt_responses.schema.follow.time.thread_time", lambda: next(ticks))
    follower = form(tree(lists(20))).follow()
    assert follower.feed(b"[" * 50)
    assert next(ticks) < 5 * follow.SLOW_S
    assert follower.feed(b"x]")
    assert follower.whole
    assert follower.departure() is not None

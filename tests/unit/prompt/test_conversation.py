"""The items that a request brings, as they are written down."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.support.tokens import vocabulary
from trt_responses.harmony.dialect import harmony
from trt_responses.prompt.conversation import input_blocks
from trt_responses.stores.at_rest.phrases import ITEMS, brief
from trt_responses.wire.items import ItemReference
from trt_responses.wire.parse import parse

if TYPE_CHECKING:
    from trt_responses.store import Block

SAID = {"role": "user", "content": "Hello!"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "15"}

TEXT = 'é 😀 \u2028 "\\\x00'
PARTS = [{"type": "input_text", "text": TEXT}, {"text": "Two.", "type": "output_text"}]


def blocks(*items: dict[str, Any]) -> list[Block]:
    asked = parse(orjson.dumps({"model": "m", "input": items})).input
    sent = [item for item in asked if not isinstance(item, str | ItemReference)]
    return asyncio.run(input_blocks(sent, harmony(vocabulary()).renderer, (), None))


@pytest.mark.parametrize("blank", [{}, {"id": None, "status": None}, {"id": "", "status": None}])
def test_an_item_without_an_id_and_a_status_gets_them_once(blank: dict[str, Any]) -> None:
    for block in blocks(SAID | blank, CALL | blank, RESULT | blank):
        pairs = orjson.loads(block.item)
        assert pairs["status"] == "completed"
        assert pairs["id"].partition("_")[0] in ("msg", "fc", "fco")
        assert block.item.count(b'"id":') == block.item.count(b'"status":') == 1


def test_what_an_item_says_itself_stays() -> None:
    (block,) = blocks(SAID | {"id": "msg_1", "status": "incomplete", "own": {"id": "x"}})
    assert orjson.loads(block.item) == {
        **{"type": "message", "role": "user", "content": "Hello!"},
        **{"id": "msg_1", "status": "incomplete", "own": {"id": "x"}},
    }


def test_items_are_written_in_the_words_that_the_store_has_bytes_for() -> None:
    for block in blocks(SAID, CALL, RESULT):
        if block.kind != "call":  # whose words are those of the calls that are made here
            shorter = brief(block.item, ITEMS[block.kind])
            assert shorter is not None
            assert len(shorter) < len(block.item) - 50


@pytest.mark.parametrize("phase", [{}, {"phase": "commentary"}])
@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
@pytest.mark.parametrize("content", [TEXT, [], PARTS, [*PARTS, {**PARTS[0], "own": [1]}]])
def test_a_plain_message_is_written_as_one_that_sets_every_field(
    role: str, content: object, phase: dict[str, str]
) -> None:
    said = {"role": role, "content": content} | phase
    plain, whole = blocks(said, {"type": "message", **said, "id": None, "status": None})
    pairs = [list(orjson.loads(block.item).items()) for block in (plain, whole)]
    assert len(plain.item) == len(whole.item), "in as many bytes"
    assert [pair for pair in pairs[0] if pair[0] != "id"] == [p for p in pairs[1] if p[0] != "id"]
    assert [name for name, _ in pairs[0]] == [name for name, _ in pairs[1]]

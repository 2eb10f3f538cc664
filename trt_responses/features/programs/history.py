"""The program that waits for its client, and its calls so far, read from a conversation's items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from trt_responses.accept.accepted import Accepted
from trt_responses.errors import invalid_value
from trt_responses.language.messages import FUNCTIONS
from trt_responses.prompt.conversation import callee_of
from trt_responses.store import Block
from trt_responses.wire.items import ItemReference

Item = Mapping[str, Any]

TYPES = (
    *("function_call", "custom_tool_call", "function_call_output", "custom_tool_call_output"),
    *("program", "program_output"),
)


class Recorded(NamedTuple):
    """A call that a program has made, with what the client's tool gave."""

    name: str
    """The model's name for the tool."""
    text: str
    output: str


class Waiting(NamedTuple):
    """A program without a result, all of whose calls have outputs."""

    call_id: str
    code: str
    fingerprint: str
    calls: Sequence[Recorded]


class Found(NamedTuple):
    """What the items of a conversation say of programs."""

    waiting: Waiting | None
    silent: Sequence[int]
    """The places of input items that are between a program and its client: the model reads none of
    them."""


def found_in(accepted: Accepted, prior: Sequence[Block]) -> Found:
    """What the request and the conversation before it say of programs. Raises an `InvalidRequest`
    where a program's call has no output."""
    program: Item | None = None
    calls: dict[str, Item] = {}
    outputs: dict[str, str] = {}
    inside: list[int | None] = []
    for place, item in (*((None, one) for one in _stored(prior)), *_sent(accepted)):
        call_id = item.get("call_id") or ""
        match item["type"]:
            case "program":
                program, calls, outputs = item, {}, {}
            case "program_output":
                program = None
            case "function_call" | "custom_tool_call" if caller_of(item) is not None:
                calls[call_id] = item
                inside.append(place)
            case "function_call_output" | "custom_tool_call_output" if (
                call_id in calls or caller_of(item) is not None
            ):
                outputs[call_id] = _text(item.get("output"))
                inside.append(place)
    silent = [place for place in inside if place is not None]
    if program is None:
        return Found(None, silent)
    mine = {one: call for one, call in calls.items() if caller_of(call) == program["call_id"]}
    if missing := [one for one in mine if one not in outputs]:
        raise invalid_value(
            "input",
            f"the program '{program['call_id']:.100}' waits for the output of its call "
            f"'{missing[0]:.100}': send an output for each of its calls",
        )
    recorded = [
        Recorded(
            callee_of(call["name"], call.get("namespace")).removeprefix(FUNCTIONS),
            call.get("arguments", call.get("input", "")),
            outputs[one],
        )
        for one, call in mine.items()
    ]
    return Found(
        Waiting(program["call_id"], program["code"], program["fingerprint"], recorded), silent
    )


def caller_of(item: Item) -> str | None:
    """The program that has made a call, or whose call an output answers; None: the model."""
    caller = item.get("caller")
    is_programs = isinstance(caller, dict) and caller.get("type") == "program"
    return str(caller.get("caller_id")) if is_programs else None  # type: ignore[union-attr]


def _stored(prior: Sequence[Block]) -> Iterator[Item]:
    for block in prior:
        if b"program" in block.item or b"_call_output" in block.item:
            item = orjson.loads(block.item)
            if item.get("type") in TYPES:
                yield item


def _sent(accepted: Accepted) -> Iterable[tuple[int, Item]]:
    if isinstance(accepted.input, str):
        return
    for place, item in enumerate(accepted.input):
        if not isinstance(item, ItemReference) and item.type in TYPES:
            yield place, item.model_dump(exclude_none=True)


def _text(output: object) -> str:
    if isinstance(output, list):
        return "\n".join(str(part.get("text", "")) for part in output if isinstance(part, dict))
    return str(output or "")

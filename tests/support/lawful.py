"""What every log must be, whatever the model wrote and however the run ended.

Reads events as a client does, from their JSON, and knows nothing of how they were made.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    Json = dict[str, Any]

OPENING = ["response.created", "response.in_progress"]
TERMINAL = {
    "completed": ["response.completed"],
    "incomplete": ["response.incomplete"],
    "failed": ["error", "response.failed"],
    "cancelled": [],
}
"""The end of a log, by the status of its last snapshot."""

TEXTS = {"message": "output_text", "reasoning": "reasoning_text"}
"""The kind of part that an item holds."""

PREFIXES = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
}

CALLS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}
"""The events of a call's text, and the key that holds it."""


def check(events: Sequence[Json], last: Json) -> None:
    """Fails unless the events are lawful, and tell the last snapshot."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    ending = TERMINAL[last["status"]]
    types = [event["type"] for event in events]
    assert types[:2] == OPENING
    assert types[len(types) - len(ending) :] == ending
    body = events[2 : len(events) - len(ending)]
    snapshots = [event["response"] for event in events[:2]]
    assert all(shot["status"] == "in_progress" and not shot["output"] for shot in snapshots)
    if ending:
        assert events[-1]["response"] == last
    _check_snapshot(last)
    items = _items(body)
    assert [item[-1]["item"] for item in items] == last["output"]
    for index, item in enumerate(items):
        _check_item(item, index)
    ids = [item["id"] for item in last["output"]]
    calls = [item["call_id"] for item in last["output"] if "call_id" in item]
    assert len(set(ids)) == len(ids)
    assert len(set(calls)) == len(calls)


def _check_snapshot(last: Json) -> None:
    status, output = last["status"], last["output"]
    assert (last["error"] is not None) == (status == "failed")
    assert (last["incomplete_details"] is not None) == (status == "incomplete")
    assert (last["completed_at"] is not None) == (status == "completed")
    whole = output if status == "completed" else output[:-1]
    assert all(item["status"] == "completed" for item in whole)
    assert all(item["status"] in ("completed", "incomplete") for item in output)
    usage = last["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]


def _items(body: Sequence[Json]) -> list[list[Json]]:
    """The events between the opening and the end, item by item: one is over before the next."""
    items: list[list[Json]] = []
    for event in body:
        if event["type"] == "response.output_item.added":
            assert not items or items[-1][-1]["type"] == "response.output_item.done"
            items.append([])
        items[-1].append(event)
    return items


def _check_item(events: Sequence[Json], index: int) -> None:
    added, done = events[0]["item"], events[-1]["item"]
    assert added["status"] == "in_progress"
    assert done["id"].startswith(PREFIXES[done["type"]])
    for event in events:
        assert event["output_index"] == index
        assert event.get("item_id", done["id"]) == done["id"]
        assert event.get("content_index", 0) == 0
    deltas = "".join(event["delta"] for event in events if event["type"].endswith(".delta"))
    assert all(event["delta"] for event in events if event["type"].endswith(".delta"))
    kind = TEXTS.get(done["type"])
    if kind is None:
        _check_call(events, deltas)
        return
    _check_order(events, f"response.{kind}", parts=True)
    assert (added["content"], len(done["content"])) == ([], 1)
    assert added == done | {"status": "in_progress", "content": []}
    first, last = events[1]["part"], events[-2]["part"]
    assert (first["type"], first["text"]) == (kind, "")
    if "logprobs" in first:  # each delta's, one after another
        first |= {"logprobs": [p for event in events for p in _logprobs_of_delta(event)]}
    assert last == first | {"text": deltas}
    assert events[-3]["text"] == deltas
    assert done["content"] == [last]


def _logprobs_of_delta(event: Json) -> list[Json]:
    logprobs: list[Json] = event["logprobs"] if event["type"].endswith(".delta") else []
    return logprobs


def _check_call(events: Sequence[Json], deltas: str) -> None:
    added, done = events[0]["item"], events[-1]["item"]
    text, key = CALLS[done["type"]]
    _check_order(events, text, parts=False)
    assert added == done | {"status": "in_progress", key: ""}
    assert events[-2][key] == done[key] == deltas
    if done["type"] == "function_call":
        assert events[-2]["name"] == done["name"]
    if done["status"] == "completed" and done["type"] == "function_call":
        assert deltas, "a whole call has arguments, if only {}"


def _check_order(events: Sequence[Json], text: str, *, parts: bool) -> None:
    """Added, part added, deltas, text done, part done, done: nested, and nothing else."""
    part = [f"response.content_part.{word}" for word in ("added", "done") if parts]
    frame = ["response.output_item.added", *part[:1], f"{text}.delta", f"{text}.done", *part[1:]]
    frame.append("response.output_item.done")
    types = [event["type"] for event in events]
    merged = [types[0], *(b for a, b in pairwise(types) if (a, b) != (f"{text}.delta",) * 2)]
    assert merged in (frame, [name for name in frame if not name.endswith(".delta")])

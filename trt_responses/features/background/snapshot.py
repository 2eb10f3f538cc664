"""The snapshot of a stored response or job; a job whose server died reads as failed.

Knows snapshots as JSON; knows no store and no HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trt_responses.store import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from trt_responses.store import Job

LOST = (
    "The server that was making this response stopped, or was cut off, before the response was "
    "done: send the request again."
)


def snapshot(found: Record | Job) -> bytes:
    """The response as JSON: the last snapshot there is, `failed` when its server is lost."""
    if isinstance(found, Record) or not found.lost:
        return found.body
    return lost_snapshot(found.body)


def with_outputs(found: Record, answer_of: Callable[[bytes], str | None]) -> bytes:
    """The last snapshot with the outputs of code that was run here, which `answer_of` finds in the
    block of each call."""
    last = orjson.loads(found.body)
    calls = [block for block in found.blocks if b'"code_interpreter_call"' in block.item]
    blocks = {orjson.loads(block.item)["id"]: block.ids for block in calls}
    for item in last["output"]:
        if item["type"] == "code_interpreter_call" and item["outputs"] is None:
            text = answer_of(blocks.get(item["id"], b""))
            if text is not None:
                item["outputs"] = [{"type": "logs", "logs": text}] if text else []
    return orjson.dumps(last)


def lost_snapshot(body: bytes) -> bytes:
    """The snapshot of a response in progress, ended as a lost server's: open items are
    incomplete."""
    last = orjson.loads(body)
    last |= {"status": "failed", "error": {"code": "server_error", "message": LOST}}
    for item in last["output"]:
        if item.get("status") == "in_progress":
            item["status"] = "incomplete"
    return orjson.dumps(last)

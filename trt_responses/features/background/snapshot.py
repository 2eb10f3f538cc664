"""The snapshot of a stored response or job; a job whose server died reads as failed.

Knows snapshots as JSON; knows no store and no HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from trt_responses.store import Record

if TYPE_CHECKING:
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


def lost_snapshot(body: bytes) -> bytes:
    """The snapshot of a response in progress, ended as a lost server's: open items are
    incomplete."""
    last = orjson.loads(body)
    last |= {"status": "failed", "error": {"code": "server_error", "message": LOST}}
    for item in last["output"]:
        if item.get("status") == "in_progress":
            item["status"] = "incomplete"
    return orjson.dumps(last)

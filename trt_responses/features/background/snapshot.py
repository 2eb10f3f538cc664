"""The snapshot of a job whose server died: it reads as failed."""

from __future__ import annotations

import orjson

LOST = (
    "The server that was making this response stopped, or was cut off, before the response was "
    "done: send the request again."
)


def lost_snapshot(body: bytes) -> bytes:
    """The snapshot of a response in progress, ended as a lost server's: open items are
    incomplete."""
    last = orjson.loads(body)
    last |= {"status": "failed", "error": {"code": "server_error", "message": LOST}}
    for item in last["output"]:
        if item.get("status") == "in_progress":
            item["status"] = "incomplete"
    return orjson.dumps(last)

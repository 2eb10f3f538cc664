"""What holds for every reply and every stream of any request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.sdk_judge import SPECIFIED, refused

if TYPE_CHECKING:
    from tests.support.asgi import Call

    pass

RESPONSE_KEYS = SPECIFIED["response"]
NEVER_NULL = {
    *("tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p", "output"),
    *("presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "store", "id"),
    *("background", "service_tier", "metadata", "created_at", "status", "model", "object"),
}


def check_headers(call: Call) -> None:
    """The headers that every reply has."""
    assert call.headers["x-request-id"].startswith("req_")
    assert int(call.headers["openai-processing-ms"]) >= 0
    assert call.headers["cache-control"] == "no-store"


def check_streamed(call: Call) -> dict[str, Any]:
    """A whole stream as a strict client takes it; its last snapshot."""
    assert call.status == 200
    assert call.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert call.headers["x-accel-buffering"] == "no"
    assert "content-length" not in call.headers
    assert call.body.endswith(b"\n\ndata: [DONE]\n\n")
    events = call.events
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        assert refused(event) is None
        if "response" in event:
            check_keys(event["response"])
    last: dict[str, Any] = events[-1]["response"]
    return last


def check_keys(response: dict[str, Any]) -> None:
    assert len(RESPONSE_KEYS) == 31
    assert response.keys() >= RESPONSE_KEYS
    assert not [key for key in NEVER_NULL if response[key] is None]


def without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        drop = ("id", "call_id", "created_at", "completed_at")
        return {key: without_ids(inner) for key, inner in value.items() if key not in drop}
    return [without_ids(inner) for inner in value] if isinstance(value, list) else value

"""Items as a list gives them back: complete, and in pages.

Clients send items in short forms; a reader of a list expects the long ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson

from trt_responses.errors import invalid_value
from trt_responses.store import Block

Item = dict[str, Any]

Order = Literal["asc", "desc"]


class Page(NamedTuple):
    """What part of a list is wanted."""

    order: Order = "desc"
    limit: int = 20
    after: str | None = None


def page_of(items: Sequence[Item], page: Page) -> Item:
    """A page of items that came in this order."""
    ordered = list(items) if page.order == "asc" else list(reversed(items))
    if page.after is not None:
        place = next((n for n, item in enumerate(ordered) if item["id"] == page.after), None)
        if place is None:
            raise invalid_value("after", f"no item of the list has the id {page.after!r:.100}")
        ordered = ordered[place + 1 :]
    data = ordered[: page.limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else "",
        "last_id": data[-1]["id"] if data else "",
        "has_more": len(ordered) > len(data),
    }


def listed(blocks: Iterable[Block]) -> list[Item]:
    """The items of blocks, in their long form. A later one with the same id gets a number behind
    it: a page begins behind an id."""
    items = [whole(orjson.loads(block.item)) for block in blocks]
    seen, numbers = set[str](), Counter[str]()
    for item in items:
        name = item["id"]
        while item["id"] in seen:
            numbers[name] += 1
            item["id"] = f"{name}-{numbers[name] + 1}"
        seen.add(item["id"])
    return items


def whole(item: Mapping[str, Any]) -> Item:
    """An item in its long form: a text is a list of parts, of the kind that its role has."""
    filled = dict(item)
    match item.get("type"):
        case "message":
            filled["content"] = _content(item["content"], item["role"])
        case "function_call_output" | "custom_tool_call_output" if isinstance(item["output"], list):
            filled["output"] = _content(item["output"], "user")
        case "reasoning":
            filled |= {"summary": item.get("summary") or []}
            if item.get("content"):
                filled["content"] = [part | {"type": "reasoning_text"} for part in item["content"]]
    return filled


def _content(content: str | list[Item], role: str) -> list[Item]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [_part(part, role) for part in parts]


def _part(part: Item, role: str) -> Item:
    if role == "assistant":
        if part["type"] == "refusal":
            return part
        return {"annotations": [], "logprobs": []} | part | {"type": "output_text"}
    if part["type"] == "refusal":
        return {"type": "input_text", "text": part["refusal"]}
    return part | {"type": "input_text"} if "text" in part else part

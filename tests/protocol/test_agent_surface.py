"""What only agents use, by every way in which a response is read: each event and item is judged as
a strict client would.

Budget: 20 s on one core.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from openai.types.responses import Response

from tests.support.background import ended
from tests.support.boxed import no_box
from tests.support.sdk_judge import accumulated, refused
from tests.support.served import ANSWER, KEYED, served
from tests.support.sockets import connected

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.served import Served

Json = dict[str, Any]

BOXED = [
    pytest.mark.slow,  # starts interpreters in their boxes
    pytest.mark.skipif(no_box() is not None, reason=f"no box here: {no_box()}"),
]
WAYS = ("plain", "stream", "background", "background stream", "socket")


class Story(NamedTuple):
    """A request, what the model writes to it, and the items of the response."""

    tools: list[Json]
    written: tuple[str, ...]
    kinds: list[str]


def calling(name: str, **arguments: str) -> str:
    return (
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
        f"{json.dumps(arguments)}<|call|>"
    )


MAIL: Json = {
    "type": "function",
    "name": "send_mail",
    "description": "Sends a mail.",
    "parameters": {"type": "object", "properties": {}},
    "defer_loading": True,
}
ORDER: Json = {
    "type": "function",
    "name": "order",
    "parameters": {"type": "object", "properties": {}},
    "allowed_callers": ["programmatic"],
}
PLOT = (
    "<|channel|>analysis to=python code<|message|>"
    "open('table.csv', 'w').write('1,2')\nprint(3)<|call|>"
)
CITES = "<|channel|>final<|message|>See [the table](sandbox:/mnt/data/table.csv).<|return|>"
STORIES = {
    "a search": Story(
        [{"type": "tool_search"}, MAIL],
        (calling("tool_search", query="mail"), calling("send_mail")),
        ["tool_search_call", "tool_search_output", "function_call"],
    ),
    "a program that waits": Story(
        [{"type": "programmatic_tool_calling"}, ORDER],
        (calling("programmatic_tool_calling", code="await tools.order()"), ANSWER),
        ["program", "function_call"],
    ),
    "a program that ends": Story(
        [{"type": "programmatic_tool_calling"}, ORDER],
        (calling("programmatic_tool_calling", code="1 + 1"), ANSWER),
        ["program", "program_output", "message"],
    ),
    "files": Story(
        [{"type": "code_interpreter", "container": {"type": "auto"}}],
        (PLOT, CITES),
        ["code_interpreter_call", "message"],
    ),
}


async def read(s: Served, way: str, fields: Json) -> tuple[list[Json], Json]:
    """The events of a response, where there are some, and the response."""
    if way == "socket":
        async with connected(s.app) as socket:
            events: list[Json] = await socket.answer(input="Hello", **fields)
            return events, events[-1]["response"]
    if way.startswith("background"):
        started = (await s.client.create(background=True, **fields)).json()
        last = await ended(s, started["id"])
        if way == "background":
            return [], last
        call = await s.client.get(f"/v1/responses/{started['id']}?stream=true")
        assert call.events[-1]["response"] == last
        return call.events, last
    call = await s.client.create(stream=way == "stream", **fields)
    assert call.status == 200, call.body
    return (call.events, call.events[-1]["response"]) if way == "stream" else ([], call.json())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "a search" else BOXED) for name in STORIES]
)
def test_each_event_and_item_is_what_a_strict_client_takes(
    tmp_path: Path, name: str, way: str
) -> None:
    told = STORIES[name]
    fields: Json = {"tools": told.tools, "include": ["code_interpreter_call.outputs"]}

    async def story() -> None:
        settings: Json = {"data_dir": tmp_path, **KEYED}
        if name != "a search":
            settings["python"] = "boxed"
        async with served(*told.written, **settings) as s:
            events, last = await read(s, way, fields)
            assert [item["type"] for item in last["output"]] == told.kinds
            Response.model_validate_json(json.dumps(last), strict=True)
            for event in events:
                assert refused(event) is None, event
            if events:
                gathered = [(item["type"], item["id"]) for item in accumulated(events)]
                assert gathered == [(item["type"], item["id"]) for item in last["output"]]
                done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
                assert sorted(done, key=str) == sorted(last["output"], key=str)
                numbers = [event["sequence_number"] for event in events]
                assert numbers == list(range(len(numbers)))
            if name == "files":
                (cited,) = last["output"][-1]["content"][0]["annotations"]
                assert cited["type"] == "container_file_citation"
            kept = (await s.client.get(f"/v1/responses/{last['id']}")).json()
            assert kept["output"] == last["output"]

    asyncio.run(story())
